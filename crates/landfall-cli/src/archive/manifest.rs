//! The manifest of objects: what they contain, and how to recognise damage.

use landfall::{ArchivedLetter, Timestamp};
use serde::{Deserialize, Serialize};

use super::encoding::{decode, sha256};

/// The format of manifests and objects. A reader refuses any other.
const FORMAT: &str = "landfall-dead-letters/1";

pub(super) const OBJECT: &str = ".jsonl.zst";
pub(super) const MANIFEST: &str = ".manifest.json";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    format: String,
    pub(super) objects: Vec<Object>,
}

/// An object of the archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Object {
    pub(crate) name: String,
    pub(crate) letters: u64,
    /// Rows of the audit trail.
    pub(crate) history: u64,
    pub(crate) first_id: i64,
    pub(crate) last_id: i64,
    /// When the letters were first seen: milliseconds since 1970.
    pub(crate) from_ms: i64,
    pub(crate) to_ms: i64,
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
}

impl Object {
    /// Describes the object with these letters. The same letters have the same name, so that a repetition after a
    /// crash leaves no second object.
    pub(super) fn of(letters: &[ArchivedLetter], content: &[u8]) -> Self {
        let ids = || letters.iter().map(|letter| letter.id);
        let times = || letters.iter().map(|letter| letter.first_seen);
        let (first_id, last_id) = (ids().min().unwrap_or_default(), ids().max().unwrap_or_default());
        let (from_ms, to_ms) = (times().min().unwrap_or_default(), times().max().unwrap_or_default());
        let (day, sha256) = (Timestamp::from_millis(from_ms).to_string(), sha256(content));
        let day = day.split('T').next().unwrap_or_default();
        Self {
            name: format!("dead-letters/{day}/{first_id}-{last_id}-{}{OBJECT}", &sha256[..16]),
            letters: letters.len() as u64,
            history: letters.iter().map(|letter| letter.history.len() as u64).sum(),
            first_id,
            last_id,
            from_ms,
            to_ms,
            bytes: content.len() as u64,
            sha256,
        }
    }

    /// Returns the letters of a verified object. The error is the end of a sentence about it.
    pub(super) fn open(&self, content: &[u8]) -> Result<Vec<ArchivedLetter>, String> {
        if content.len() as u64 != self.bytes {
            return Err(format!("has {} bytes, and its manifest says {}", content.len(), self.bytes));
        }
        let found = sha256(content);
        if found != self.sha256 {
            return Err(format!("has the SHA-256 {found}, and its manifest says {}", self.sha256));
        }
        let letters = decode(content).map_err(|error| format!("cannot be read: {error}"))?;
        if letters.len() as u64 != self.letters {
            return Err(format!("has {} letters, and its manifest says {}", letters.len(), self.letters));
        }
        Ok(letters)
    }
}

/// Returns the name of an object's manifest.
pub(super) fn manifest_name(object: &str) -> String {
    format!("{}{MANIFEST}", object.strip_suffix(OBJECT).unwrap_or(object))
}

impl Manifest {
    pub(super) fn new(object: Object) -> Self {
        Self { format: FORMAT.to_owned(), objects: vec![object] }
    }

    /// Parses a manifest. The error is the end of a sentence about it.
    pub(super) fn parse(content: &[u8]) -> Result<Self, String> {
        let manifest: Self = serde_json::from_slice(content).map_err(|error| format!("cannot be read: {error}"))?;
        if manifest.format == FORMAT {
            Ok(manifest)
        } else {
            Err(format!("has the format {:?}; this build reads {FORMAT:?}", manifest.format))
        }
    }
}
