//! What a crash could leave on the disk at some moment.
//!
//! Bytes and length of a file are durable as of its last sync, and the names in a folder as of the last sync of the
//! folder. Everything since then is **open**, each change for itself: a name may be found as before or as after, and
//! of a write everything, nothing, a part up to any byte, or any of its sectors may have reached the disk. That is more
//! than any one file system does, and all of them together stay within it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::disk::overwrite;
use crate::journal::{Operation, Place};
use crate::random::Random;
use crate::tree::{Node, NodeId, Tree};

pub(crate) const SECTOR: u64 = 512;

/// Follows a journal.
#[derive(Debug, Clone)]
pub(crate) struct Crash {
    durable: Tree,
    open: Vec<Open>,
}

/// A change that was not synced when the moment came.
#[derive(Debug, Clone)]
pub(crate) struct Open {
    change: Change,
    /// Its sync failed: no later sync makes it durable.
    is_doubtful: bool,
    /// It was synced, and only waits for a doubtful change before it in the same file.
    is_settled: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum Change {
    /// `node` is no longer found at `from`, and found at `to`.
    Name {
        from: Option<Place>,
        to: Option<Place>,
        node: NodeId,
        unsynced: Vec<NodeId>,
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

/// What became of an open change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fate {
    Kept,
    Dropped,
    /// Of a write: so many bytes at its beginning were kept.
    Torn {
        bytes: usize,
        /// The file has the length that the whole write would have given it.
        is_grown: bool,
    },
    /// Of a write: all but these sectors, counted from the beginning of the file.
    Lost {
        sectors: Vec<u64>,
        is_grown: bool,
    },
}

impl Crash {
    pub(crate) fn new(durable: Tree) -> Self {
        Self { durable, open: Vec::new() }
    }

    pub(crate) fn follow(&mut self, operation: &Operation) {
        match operation.clone() {
            Operation::CreateFolder { place, node } => {
                self.durable.admit(node, Node::Folder(BTreeMap::new()));
                self.name(None, Some(place), node);
            }
            Operation::CreateFile { place, node } => {
                self.durable.admit(node, Node::File(Arc::default()));
                self.name(None, Some(place), node);
            }
            Operation::Rename { from, to, node } => self.name(Some(from), Some(to), node),
            Operation::Remove { place, node } => self.name(Some(place), None, node),
            Operation::Write { node, position, bytes } => self.begin(Change::Write { node, position, bytes }),
            Operation::SetLength { node, length } => self.begin(Change::Length { node, length }),
            Operation::SyncFolder { node } => self.settle_names(node),
            Operation::Sync { node } => {
                let data = |open: &&mut Open| open.change.file() == Some(node) && !open.is_doubtful;
                self.open.iter_mut().filter(data).for_each(|open| open.is_settled = true);
                self.make_durable(node);
            }
            Operation::FailedSync { node } => {
                let data = |open: &&mut Open| open.change.file() == Some(node);
                self.open.iter_mut().filter(data).for_each(|open| open.is_doubtful = true);
            }
        }
    }

    fn begin(&mut self, change: Change) {
        self.open.push(Open { change, is_doubtful: false, is_settled: false });
    }

    fn name(&mut self, from: Option<Place>, to: Option<Place>, node: NodeId) {
        let mut unsynced: Vec<NodeId> = from.iter().chain(&to).map(|place| place.0).collect();
        unsynced.dedup();
        self.begin(Change::Name { from, to, node, unsynced });
    }

    fn settle_names(&mut self, folder: NodeId) {
        let durable = &mut self.durable;
        self.open.retain_mut(|open| {
            let Change::Name { unsynced, .. } = &mut open.change else { return true };
            unsynced.retain(|waiting| *waiting != folder);
            if unsynced.is_empty() {
                open.change.apply(&Fate::Kept, durable);
            }
            !matches!(&open.change, Change::Name { unsynced, .. } if unsynced.is_empty())
        });
    }

    /// Takes over what is settled of a file, up to the first change that is not.
    fn make_durable(&mut self, node: NodeId) {
        let (durable, mut is_blocked) = (&mut self.durable, false);
        self.open.retain(|open| {
            if open.change.file() != Some(node) || is_blocked || !open.is_settled {
                is_blocked |= open.change.file() == Some(node);
                return true;
            }
            open.change.apply(&Fate::Kept, durable);
            false
        });
    }

    /// The open changes, for people.
    pub(crate) fn outline(&self) -> Vec<String> {
        let outline = |open: &Open| match &open.change {
            Change::Name { from, to, .. } => format!("{from:?} to {to:?}"),
            Change::Write { node, position, bytes } => format!("{} bytes at {position} of {node}", bytes.len()),
            Change::Length { node, length } => format!("length {length} of {node}"),
        };
        self.open.iter().map(outline).collect()
    }

    pub(crate) fn open(&self) -> &[Open] {
        &self.open
    }

    /// The disk after a crash in which the open changes had these fates; those for which none is given are kept.
    pub(crate) fn image(&self, fates: &[Fate]) -> Tree {
        let mut tree = self.durable.clone();
        for (index, open) in self.open.iter().enumerate() {
            let fate = if open.is_settled { &Fate::Kept } else { fates.get(index).unwrap_or(&Fate::Kept) };
            open.change.apply(fate, &mut tree);
        }
        tree
    }

    /// Any fates at all, those that go wrong in one place only as often as those that go wrong in many.
    pub(crate) fn any_fates(&self, random: &mut Random) -> Vec<Fate> {
        let kept = [0, 50, 90][random.below(3)];
        let any = |open: &Open| if random.chance(kept) { Fate::Kept } else { open.change.any_fate(random) };
        self.open.iter().map(any).collect()
    }

    /// Every way in which exactly one write was torn at one byte, or lost one sector: with what came after it lost,
    /// as if the disk stopped there, or kept, as if it had other things to do first.
    pub(crate) fn every_tear(&self) -> Vec<Vec<Fate>> {
        let mut all = Vec::new();
        for (index, open) in self.open.iter().enumerate() {
            let Change::Write { bytes, .. } = &open.change else { continue };
            let mut add = |fate: Fate, then: Fate| {
                let later = self.open[index + 1..].iter().map(|_| then.clone());
                all.push((0..index).map(|_| Fate::Kept).chain([fate]).chain(later).collect());
            };
            for bytes in 0..bytes.len() {
                add(Fate::Torn { bytes, is_grown: false }, Fate::Dropped);
                add(Fate::Torn { bytes, is_grown: true }, Fate::Kept);
            }
            for sector in open.change.sectors() {
                add(Fate::Lost { sectors: vec![sector], is_grown: true }, Fate::Kept);
                add(Fate::Lost { sectors: vec![sector], is_grown: false }, Fate::Dropped);
            }
        }
        all
    }
}

impl Change {
    /// The file whose bytes or length it changes.
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

    fn any_fate(&self, random: &mut Random) -> Fate {
        let Change::Write { bytes, .. } = self else {
            return if random.chance(50) { Fate::Kept } else { Fate::Dropped };
        };
        match random.below(5) {
            0 => Fate::Kept,
            1 => Fate::Dropped,
            2 => Fate::Torn { bytes: random.below(bytes.len().max(1)), is_grown: random.chance(50) },
            _ => {
                let likely = [10, 50, 90][random.below(3)];
                let sectors = self.sectors().filter(|_| random.chance(likely)).collect();
                Fate::Lost { sectors, is_grown: random.chance(50) }
            }
        }
    }

    fn apply(&self, fate: &Fate, tree: &mut Tree) {
        match self {
            _ if *fate == Fate::Dropped => {}
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
                let is_grown = match fate {
                    Fate::Torn { bytes: kept, is_grown } => {
                        overwrite(file, *position, &bytes[..*kept]);
                        *is_grown
                    }
                    Fate::Lost { sectors, is_grown } => {
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
