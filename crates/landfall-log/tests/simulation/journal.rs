//! The operations on a disk and the events its user recorded, in the order in which they happened.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::events::Event;
use crate::tree::NodeId;

#[derive(Debug, Clone)]
pub(crate) enum Entry {
    Operation {
        /// Its path when it was opened; only for error messages and for comparing journals.
        path: PathBuf,
        operation: Operation,
    },
    Event(Event),
}

/// A name in a folder.
pub(crate) type DirEntry = (NodeId, String);

#[derive(Debug, Clone)]
pub(crate) enum Operation {
    CreateFolder {
        entry: DirEntry,
        node: NodeId,
    },
    CreateFile {
        entry: DirEntry,
        node: NodeId,
    },
    Rename {
        from: DirEntry,
        to: DirEntry,
        node: NodeId,
    },
    Remove {
        entry: DirEntry,
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
    /// A failed sync: the kernel events the pages as clean, and no later sync writes them.
    FailedSync {
        node: NodeId,
    },
}

impl Entry {
    /// The entry without values that differ between two runs of the same seed: salts of segments and timestamps.
    pub(crate) fn outline(&self) -> String {
        match self {
            Entry::Event(event) => event.outline(),
            Entry::Operation { path, operation } => format!("{} {}", operation.outline(), path.display()),
        }
    }

    pub(crate) fn is_below(&self, folder: &str) -> bool {
        matches!(self, Entry::Operation { path, .. } if path.starts_with(Path::new(folder)))
    }
}

impl Operation {
    fn outline(&self) -> String {
        match self {
            Operation::CreateFolder { .. } => "create folder".into(),
            Operation::CreateFile { .. } => "create".into(),
            Operation::Rename { to, .. } => format!("rename to {}", to.1),
            Operation::Remove { .. } => "remove".into(),
            Operation::SyncFolder { .. } => "sync folder".into(),
            Operation::Write { position, bytes, .. } => format!("write {} bytes at {position}", bytes.len()),
            Operation::SetLength { length, .. } => format!("set length to {length}"),
            Operation::Sync { .. } => "sync".into(),
            Operation::FailedSync { .. } => "fail to sync".into(),
        }
    }
}
