//! Models what a crash can leave on the disk.
//!
//! Bytes and length of a file are durable as of its last sync; the names in a folder, as of the folder's last sync.
//! Each later change is **unsynced** and independent of the others. A name may have its old or its new state. A write
//! may be complete, missing, torn at any byte, or lack any of its sectors. That is more than any one file system does,
//! and covers all of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::disk::overwrite;
use crate::journal::{DirEntry, Operation};
use crate::random::Random;
use crate::tree::{Node, NodeId, Tree};

pub(crate) const SECTOR: u64 = 512;

/// Replays a journal up to a crash point.
#[derive(Debug, Clone)]
pub(crate) struct Crash {
    durable: Tree,
    unsynced: Vec<Unsynced>,
}

/// A change that was not synced before the crash.
#[derive(Debug, Clone)]
pub(crate) struct Unsynced {
    change: Change,
    /// Its sync failed: no later sync makes it durable.
    sync_failed: bool,
    /// It is synced, but an earlier change of the same file is not, because its sync failed.
    is_synced: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum Change {
    /// Moves `node` from `from` to `to`.
    Name {
        from: Option<DirEntry>,
        to: Option<DirEntry>,
        node: NodeId,
        unsynced_folders: Vec<NodeId>,
    },
    Write {
        node: NodeId,
        position: u64,
        bytes: Arc<[u8]>,
    },
    Length {
        node: NodeId,
        length: u64,
    },
}

/// What the crash left of an unsynced change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Survival {
    Kept,
    Dropped,
    /// Of a write: this many bytes at its beginning are kept.
    Torn {
        bytes: usize,
        /// The file has the length that the complete write would have given it.
        is_grown: bool,
    },
    /// Of a write: all but these sectors are kept, counted from the beginning of the file.
    Lost {
        sectors: Vec<u64>,
        is_grown: bool,
    },
}

impl Crash {
    pub(crate) fn new(durable: Tree) -> Self {
        Self { durable, unsynced: Vec::new() }
    }

    pub(crate) fn apply(&mut self, operation: &Operation) {
        match operation.clone() {
            Operation::CreateFolder { entry, node } => {
                self.durable.add_with_id(node, Node::Folder(BTreeMap::new()));
                self.name(None, Some(entry), node);
            }
            Operation::CreateFile { entry, node } => {
                self.durable.add_with_id(node, Node::File(Arc::default()));
                self.name(None, Some(entry), node);
            }
            Operation::Rename { from, to, node } => self.name(Some(from), Some(to), node),
            Operation::Remove { entry, node } => self.name(Some(entry), None, node),
            Operation::Write { node, position, bytes } => self.begin(Change::Write { node, position, bytes }),
            Operation::SetLength { node, length } => self.begin(Change::Length { node, length }),
            Operation::SyncFolder { node } => self.sync_names(node),
            Operation::Sync { node } => {
                let data = |unsynced: &&mut Unsynced| unsynced.change.file() == Some(node) && !unsynced.sync_failed;
                self.unsynced.iter_mut().filter(data).for_each(|unsynced| unsynced.is_synced = true);
                self.make_durable(node);
            }
            Operation::FailedSync { node } => {
                let data = |unsynced: &&mut Unsynced| unsynced.change.file() == Some(node);
                self.unsynced.iter_mut().filter(data).for_each(|unsynced| unsynced.sync_failed = true);
            }
        }
    }

    fn begin(&mut self, change: Change) {
        self.unsynced.push(Unsynced { change, sync_failed: false, is_synced: false });
    }

    fn name(&mut self, from: Option<DirEntry>, to: Option<DirEntry>, node: NodeId) {
        let mut unsynced_folders: Vec<NodeId> = from.iter().chain(&to).map(|entry| entry.0).collect();
        unsynced_folders.dedup();
        self.begin(Change::Name { from, to, node, unsynced_folders });
    }

    fn sync_names(&mut self, folder: NodeId) {
        let durable = &mut self.durable;
        self.unsynced.retain_mut(|unsynced| {
            let Change::Name { unsynced_folders, .. } = &mut unsynced.change else { return true };
            unsynced_folders.retain(|waiting| *waiting != folder);
            if unsynced_folders.is_empty() {
                unsynced.change.apply(&Survival::Kept, durable);
            }
            !matches!(&unsynced.change, Change::Name { unsynced_folders, .. } if unsynced_folders.is_empty())
        });
    }

    /// Makes the synced changes of a file durable, up to the first one whose sync failed.
    fn make_durable(&mut self, node: NodeId) {
        let (durable, mut is_blocked) = (&mut self.durable, false);
        self.unsynced.retain(|unsynced| {
            if unsynced.change.file() != Some(node) || is_blocked || !unsynced.is_synced {
                is_blocked |= unsynced.change.file() == Some(node);
                return true;
            }
            unsynced.change.apply(&Survival::Kept, durable);
            false
        });
    }

    /// Describes the unsynced changes for error messages.
    pub(crate) fn outline(&self) -> Vec<String> {
        let outline = |unsynced: &Unsynced| match &unsynced.change {
            Change::Name { from, to, .. } => format!("{from:?} to {to:?}"),
            Change::Write { node, position, bytes } => format!("{} bytes at {position} of {node}", bytes.len()),
            Change::Length { node, length } => format!("length {length} of {node}"),
        };
        self.unsynced.iter().map(outline).collect()
    }

    pub(crate) fn unsynced(&self) -> &[Unsynced] {
        &self.unsynced
    }

    /// The disk after a crash with these survivals of the changes; changes without one are kept.
    pub(crate) fn image(&self, survivals: &[Survival]) -> Tree {
        let mut tree = self.durable.clone();
        for (index, unsynced) in self.unsynced.iter().enumerate() {
            let survival =
                if unsynced.is_synced { &Survival::Kept } else { survivals.get(index).unwrap_or(&Survival::Kept) };
            unsynced.change.apply(survival, &mut tree);
        }
        tree
    }

    /// Random survivals; sometimes most changes are kept, sometimes few.
    pub(crate) fn random_survivals(&self, random: &mut Random) -> Vec<Survival> {
        let kept = [0, 50, 90][random.below(3)];
        let any = |unsynced: &Unsynced| {
            if random.chance(kept) { Survival::Kept } else { unsynced.change.random_survival(random) }
        };
        self.unsynced.iter().map(any).collect()
    }

    /// Every way in which exactly one write is torn at one byte or lacks one sector. Later changes are either lost, as
    /// if the disk stopped there, or kept, as if the disk had reordered them.
    pub(crate) fn every_tear(&self) -> Vec<Vec<Survival>> {
        let mut all = Vec::new();
        for (index, unsynced) in self.unsynced.iter().enumerate() {
            let Change::Write { bytes, .. } = &unsynced.change else { continue };
            let mut add = |survival: Survival, then: Survival| {
                let later = self.unsynced[index + 1..].iter().map(|_| then.clone());
                all.push((0..index).map(|_| Survival::Kept).chain([survival]).chain(later).collect());
            };
            for bytes in 0..bytes.len() {
                add(Survival::Torn { bytes, is_grown: false }, Survival::Dropped);
                add(Survival::Torn { bytes, is_grown: true }, Survival::Kept);
            }
            for sector in unsynced.change.sectors() {
                add(Survival::Lost { sectors: vec![sector], is_grown: true }, Survival::Kept);
                add(Survival::Lost { sectors: vec![sector], is_grown: false }, Survival::Dropped);
            }
        }
        all
    }
}

impl Change {
    /// The file whose bytes or length the change affects.
    pub(crate) fn file(&self) -> Option<NodeId> {
        match self {
            Change::Name { .. } => None,
            Change::Write { node, .. } | Change::Length { node, .. } => Some(*node),
        }
    }

    /// The sectors that a write touches.
    fn sectors(&self) -> std::ops::Range<u64> {
        match self {
            Change::Write { position, bytes, .. } => {
                position / SECTOR..(position + bytes.len() as u64).div_ceil(SECTOR)
            }
            _ => 0..0,
        }
    }

    fn random_survival(&self, random: &mut Random) -> Survival {
        let Change::Write { bytes, .. } = self else {
            return if random.chance(50) { Survival::Kept } else { Survival::Dropped };
        };
        match random.below(5) {
            0 => Survival::Kept,
            1 => Survival::Dropped,
            2 => Survival::Torn { bytes: random.below(bytes.len().max(1)), is_grown: random.chance(50) },
            _ => {
                let likely = [10, 50, 90][random.below(3)];
                let sectors = self.sectors().filter(|_| random.chance(likely)).collect();
                Survival::Lost { sectors, is_grown: random.chance(50) }
            }
        }
    }

    fn apply(&self, survival: &Survival, tree: &mut Tree) {
        match self {
            _ if *survival == Survival::Dropped => {}
            Change::Name { from, to, node, .. } => {
                if let Some((folder, name)) = from
                    && tree.folder_mut(*folder).get(name) == Some(node)
                {
                    tree.folder_mut(*folder).remove(name);
                }
                if let Some((folder, name)) = to {
                    tree.folder_mut(*folder).insert(name.clone(), *node);
                }
            }
            Change::Length { node, length } => tree.file_mut(*node).resize(*length as usize, 0),
            Change::Write { node, position, bytes } => {
                let file = tree.file_mut(*node);
                let is_grown = match survival {
                    Survival::Torn { bytes: kept, is_grown } => {
                        overwrite(file, *position, &bytes[..*kept]);
                        *is_grown
                    }
                    Survival::Lost { sectors, is_grown } => {
                        for sector in self.sectors().filter(|sector| !sectors.contains(sector)) {
                            let start = (sector * SECTOR).max(*position) - position;
                            let end = ((sector + 1) * SECTOR).min(position + bytes.len() as u64) - position;
                            overwrite(file, position + start, &bytes[start as usize..end as usize]);
                        }
                        *is_grown
                    }
                    _ => {
                        overwrite(file, *position, bytes);
                        false
                    }
                };
                let end = *position as usize + bytes.len();
                if is_grown && file.len() < end {
                    file.resize(end, 0);
                }
            }
        }
    }
}
