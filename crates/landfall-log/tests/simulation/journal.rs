//! What was done to a disk, and what its user was told, in the order in which it happened.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::marks::Mark;
use crate::tree::NodeId;

#[derive(Debug, Clone)]
pub(crate) enum Entry {
    Done {
        /// What it was called when it was opened; only for people and for comparing journals.
        path: PathBuf,
        operation: Operation,
    },
    Told(Mark),
}

/// A name in a folder.
pub(crate) type Place = (NodeId, String);

#[derive(Debug, Clone)]
pub(crate) enum Operation {
    CreateFolder {
        place: Place,
        node: NodeId,
    },
    CreateFile {
        place: Place,
        node: NodeId,
    },
    Rename {
        from: Place,
        to: Place,
        node: NodeId,
    },
    Remove {
        place: Place,
        node: NodeId,
    },
    SyncFolder {
        node: NodeId,
    },
    Write {
        node: NodeId,
        position: u64,
        bytes: Arc<[u8]>,
    },
    SetLength {
        node: NodeId,
        length: u64,
    },
    Sync {
        node: NodeId,
    },
    /// A sync that failed: the pages count as clean from now on, and no later sync writes them.
    FailedSync {
        node: NodeId,
    },
}

impl Entry {
    /// The entry without anything that differs between two runs of the same seed: the salts of segments and the time.
    pub(crate) fn outline(&self) -> String {
        match self {
            Entry::Told(mark) => mark.outline(),
            Entry::Done { path, operation } => format!("{} {}", operation.outline(), path.display()),
        }
    }

    pub(crate) fn is_below(&self, folder: &str) -> bool {
        matches!(self, Entry::Done { path, .. } if path.starts_with(Path::new(folder)))
    }
}

impl Operation {
    fn outline(&self) -> String {
        match self {
            Operation::CreateFolder { .. } => "create the folder".into(),
            Operation::CreateFile { .. } => "create".into(),
            Operation::Rename { to, .. } => format!("rename to {}", to.1),
            Operation::Remove { .. } => "remove".into(),
            Operation::SyncFolder { .. } => "sync the folder".into(),
            Operation::Write { position, bytes, .. } => format!("write {} bytes at {position}", bytes.len()),
            Operation::SetLength { length, .. } => format!("set the length {length}"),
            Operation::Sync { .. } => "sync".into(),
            Operation::FailedSync { .. } => "fail to sync".into(),
        }
    }
}
