//! The port of the archive of dead letters: final letters leave the database with their history, and come back.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{DeadLetterId, Result};

/// A final dead letter, done or discarded, as it is stored. Names are texts: a foreign writer may have made them
/// invalid, and the archive keeps them. Times are milliseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchivedLetter {
    pub id: DeadLetterId,
    pub message_id: String,
    /// Empty if the relay could not publish it.
    pub group: String,
    pub topic: String,
    pub key: Option<String>,
    pub sequence: Option<i64>,
    pub kind: String,
    pub mode: String,
    /// The sender's headers, as JSON text.
    pub headers: String,
    pub created_at: i64,
    pub outbox_id: Option<i64>,
    /// Whether a person decided that it never takes effect; otherwise it is done.
    pub discarded: bool,
    pub holds_key: bool,
    pub error_code: String,
    pub error: String,
    pub attempts: i64,
    pub redrives: i64,
    pub original_partition: Option<i64>,
    pub original_offset: Option<i64>,
    pub first_seen: i64,
    pub last_attempt: i64,
    pub done_at: Option<i64>,
    pub fingerprint: Option<String>,
    pub causes: Option<String>,
    pub redrive_id: Option<String>,
    #[serde(skip)]
    pub payload: Bytes,
    /// The payload before it was edited for the first time.
    #[serde(skip)]
    pub original_payload: Option<Bytes>,
    /// Its rows of the audit trail, the oldest first.
    pub history: Vec<ArchivedAudit>,
}

/// A row of the audit trail of an [`ArchivedLetter`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchivedAudit {
    pub id: i64,
    pub at: i64,
    pub actor: String,
    pub action: String,
    pub detail: String,
}

/// The result of [`ArchivableLetters::restore_letters`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RestoredLetters {
    /// Put back. A letter has another id than before if its own was taken.
    pub restored: Vec<DeadLetterId>,
    /// Still in the database, so left alone: their ids in the archive.
    pub present: Vec<DeadLetterId>,
}

/// Dead letters that leave the database for an archive, and come back.
#[async_trait]
pub trait ArchivableLetters: Send + Sync {
    /// Returns the final letters that [`remove_expired`](crate::Housekeeping::remove_expired) would remove, sorted by
    /// id: at most `at_most`, and fewer if their payloads are large.
    async fn old_letters(&self, age: Duration, at_most: u64) -> Result<Vec<ArchivedLetter>>;

    /// Removes these letters, in one transaction, and returns how many existed. Letters that are not final stay. The
    /// audit trail keeps its rows and gets one for each letter, with `place`.
    async fn remove_archived_letters(&self, ids: &[DeadLetterId], place: &str, actor: &str) -> Result<u64>;

    /// Puts letters and their history back, in one transaction. A letter that is in the database is left alone, so a
    /// repetition changes nothing. A restored letter is kept for the full retention again.
    async fn restore_letters(&self, letters: &[ArchivedLetter], place: &str, actor: &str) -> Result<RestoredLetters>;
}
