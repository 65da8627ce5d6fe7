//! A file system in memory that records a journal and injects faults: failed syncs, failed writes, a full disk, kills.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use landfall_log::disk::{Access, Disk, File};
use tokio::sync::mpsc::UnboundedSender;

use crate::events::Event;
use crate::journal::{Entry, Operation};
use crate::tree::{Node, NodeId, Tree};

/// One process's access to the disk. After a kill all its operations fail, and the next process finds the files as they
/// were at that moment.
#[derive(Debug, Clone)]
pub(crate) struct ModelDisk {
    shared: Arc<Mutex<State>>,
    generation: u64,
}

#[derive(Debug)]
struct State {
    tree: Tree,
    journal: Vec<Entry>,
    generation: u64,
    faults: Faults,
    /// A sync or a write has failed in this generation.
    has_failed: bool,
    bug: Option<DiskBug>,
    preallocates_ahead: bool,
    /// A sync that has returned but is not done yet: [`DiskBug::EarlySync`].
    deferred_sync: Option<Entry>,
    watcher: Option<UnboundedSender<mpsc::Sender<()>>>,
}

/// The faults to inject. Each happens once.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Faults {
    /// This many syncs of files succeed, and the next one fails.
    pub(crate) fail_sync_after: Option<u64>,
    /// This many writes succeed, and the next one fails after half of its bytes.
    pub(crate) fail_write_after: Option<u64>,
    /// This many changes succeed, and then the process is killed.
    pub(crate) kill_after: Option<u64>,
    /// Capacity for the bytes of all files together.
    pub(crate) capacity: Option<u64>,
}

/// A planted bug: the disk claims to have done something that it has not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DiskBug {
    /// Syncing a folder does nothing.
    NoFolderSync,
    /// A sync takes effect only with the next operation on the disk.
    EarlySync,
    /// A rename removes its target first.
    RenameInTwoSteps,
}

impl ModelDisk {
    /// A disk with the content of `tree`, all of it durable.
    pub(crate) fn new(tree: Tree) -> Self {
        let (journal, faults) = (Vec::new(), Faults::default());
        let (bug, preallocates_ahead) = (None, false);
        let state = State {
            tree,
            journal,
            generation: 0,
            faults,
            has_failed: false,
            bug,
            preallocates_ahead,
            deferred_sync: None,
            watcher: None,
        };
        Self { shared: Arc::new(Mutex::new(state)), generation: 0 }
    }

    pub(crate) fn with_bug(self, bug: Option<DiskBug>) -> Self {
        self.state().bug = bug;
        self
    }

    /// Enables preallocation in the background. The order of operations then depends on timing, and a seed does not
    /// reproduce the run.
    pub(crate) fn working_ahead(self) -> Self {
        self.state().preallocates_ahead = true;
        self
    }

    pub(crate) fn set_faults(&self, faults: Faults) {
        self.state().faults = faults;
    }

    /// Sends a request to `watcher` before each sync of a file; the sync waits for its reply.
    pub(crate) fn watch_syncs(&self, watcher: Option<UnboundedSender<mpsc::Sender<()>>>) {
        self.state().watcher = watcher;
    }

    /// Kills the process that uses this disk. Returns the disk as the next process sees it.
    pub(crate) fn kill(&self) -> Self {
        let mut state = self.state();
        state.faults = Faults::default();
        state.has_failed = false;
        state.generation = self.generation + 1;
        Self { shared: Arc::clone(&self.shared), generation: state.generation }
    }

    /// Whether the process that uses this disk was killed.
    pub(crate) fn is_dead(&self) -> bool {
        self.state().generation != self.generation
    }

    /// Whether the process was killed or an injected fault has happened.
    pub(crate) fn has_fault(&self) -> bool {
        let state = self.state();
        state.generation != self.generation || state.has_failed
    }

    pub(crate) fn record(&self, event: Event) {
        self.state().journal.push(Entry::Event(event));
    }

    pub(crate) fn take_journal(&self) -> Vec<Entry> {
        std::mem::take(&mut self.state().journal)
    }

    /// The content of the files as a process sees them, synced or not.
    pub(crate) fn tree(&self) -> Tree {
        self.state().tree.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state for read operations.
    fn read_state(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.state();
        if state.generation == self.generation { Ok(state) } else { Err(dead()) }
    }

    /// The state for operations that change something.
    fn write_state(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.read_state()?;
        if is_due(&mut state.faults.kill_after) {
            state.generation += 1;
            return Err(dead());
        }
        if let Some(deferred_sync) = state.deferred_sync.take() {
            state.journal.push(deferred_sync);
        }
        Ok(state)
    }
}

fn dead() -> io::Error {
    io::Error::other("the process was killed")
}

/// Counts down; returns true once.
fn is_due(after: &mut Option<u64>) -> bool {
    match after {
        Some(0) => {
            *after = None;
            true
        }
        Some(left) => {
            *left -= 1;
            false
        }
        None => false,
    }
}

impl State {
    fn done(&mut self, path: &Path, operation: Operation) {
        self.journal.push(Entry::Operation { path: path.to_owned(), operation });
    }

    /// The free capacity.
    fn free_bytes(&self) -> u64 {
        self.faults.capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(self.tree.file_bytes()))
    }
}

impl Disk for ModelDisk {
    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let state = self.read_state()?;
        let node = state.tree.find(folder)?;
        Ok(state.tree.folder(node)?.keys().cloned().collect())
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        let mut state = self.write_state()?;
        let entry = state.tree.dir_entry(path)?;
        if state.tree.folder(entry.0)?.contains_key(&entry.1) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let node = state.tree.add(Node::Folder(BTreeMap::new()));
        state.tree.folder_mut(entry.0).insert(entry.1.clone(), node);
        state.done(path, Operation::CreateFolder { entry, node });
        Ok(())
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let mut state = self.write_state()?;
        let node = state.tree.find(path)?;
        state.tree.folder(node)?;
        if state.bug != Some(DiskBug::NoFolderSync) {
            state.done(path, Operation::SyncFolder { node });
        }
        Ok(())
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        let mut state = self.read_state()?;
        let node = match state.tree.find(path) {
            Ok(node) => node,
            Err(error) if error.kind() == io::ErrorKind::NotFound && access == Access::Create => {
                drop(state);
                state = self.write_state()?;
                let entry = state.tree.dir_entry(path)?;
                let node = state.tree.add(Node::File(Arc::default()));
                state.tree.folder_mut(entry.0).insert(entry.1.clone(), node);
                state.done(path, Operation::CreateFile { entry, node });
                node
            }
            Err(error) => return Err(error),
        };
        let is_empty = state.tree.file(node)?.is_empty();
        drop(state);
        let file = ModelFile { disk: self.clone(), node, path: path.to_owned(), may_write: access != Access::Read };
        if access == Access::Create && !is_empty {
            file.set_length(0)?;
        }
        Ok(Arc::new(file))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.write_state()?;
        let node = state.tree.find(from)?;
        let (source, target) = (state.tree.dir_entry(from)?, state.tree.dir_entry(to)?);
        let replaced = state.tree.folder(target.0)?.get(&target.1).copied();
        if let Some(replaced) = replaced {
            // A folder is never replaced; the log does not need that.
            state.tree.file(replaced)?;
            if state.bug == Some(DiskBug::RenameInTwoSteps) {
                state.done(to, Operation::Remove { entry: target.clone(), node: replaced });
            }
        }
        state.tree.folder_mut(source.0).remove(&source.1);
        state.tree.folder_mut(target.0).insert(target.1.clone(), node);
        state.done(from, Operation::Rename { from: source, to: target, node });
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.write_state()?;
        let node = state.tree.find(path)?;
        if state.tree.folder(node).is_ok_and(|entries| !entries.is_empty()) {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        let entry = state.tree.dir_entry(path)?;
        state.tree.folder_mut(entry.0).remove(&entry.1);
        state.done(path, Operation::Remove { entry, node });
        Ok(())
    }

    fn preallocates_ahead(&self) -> bool {
        self.state().preallocates_ahead
    }
}

#[derive(Debug)]
struct ModelFile {
    disk: ModelDisk,
    node: NodeId,
    path: PathBuf,
    may_write: bool,
}

impl ModelFile {
    fn write_state(&self) -> io::Result<MutexGuard<'_, State>> {
        if self.may_write { self.disk.write_state() } else { Err(io::ErrorKind::PermissionDenied.into()) }
    }
}

impl File for ModelFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let state = self.disk.read_state()?;
        let bytes = state.tree.file(self.node)?;
        let rest = bytes.get(position as usize..).unwrap_or_default();
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        let mut state = self.write_state()?;
        let grown = (position + bytes.len() as u64).saturating_sub(state.tree.file(self.node)?.len() as u64);
        let missing = grown.saturating_sub(state.free_bytes());
        let (fits, outcome) = if is_due(&mut state.faults.fail_write_after) {
            state.has_failed = true;
            (bytes.len() / 2, Err(io::Error::other("the disk failed in the middle of a write")))
        } else if missing > 0 {
            ((bytes.len() as u64).saturating_sub(missing) as usize, Err(io::ErrorKind::StorageFull.into()))
        } else {
            (bytes.len(), Ok(()))
        };
        if fits > 0 {
            overwrite(state.tree.file_mut(self.node), position, &bytes[..fits]);
            let (node, bytes) = (self.node, bytes[..fits].into());
            state.done(&self.path, Operation::Write { node, position, bytes });
        }
        outcome
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        let mut state = self.write_state()?;
        let grown = length.saturating_sub(state.tree.file(self.node)?.len() as u64);
        if grown > state.free_bytes() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        state.tree.file_mut(self.node).resize(length as usize, 0);
        state.done(&self.path, Operation::SetLength { node: self.node, length });
        Ok(())
    }

    /// Extends the file's length without writing bytes.
    fn allocate(&self, from: u64, to: u64) -> io::Result<()> {
        assert_eq!(from, self.length()?, "preallocation starts at the end of the file");
        self.set_length(to)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.disk.read_state()?.tree.file(self.node)?.len() as u64)
    }

    fn sync(&self) -> io::Result<()> {
        let watcher = self.disk.read_state()?.watcher.clone();
        if let Some(watcher) = watcher {
            let (resume, resumed) = mpsc::channel();
            // Without a watcher there is nothing to wait for.
            if watcher.send(resume).is_ok() {
                let _ = resumed.recv();
            }
        }
        let mut state = self.disk.write_state()?;
        if is_due(&mut state.faults.fail_sync_after) {
            state.has_failed = true;
            state.done(&self.path, Operation::FailedSync { node: self.node });
            return Err(io::Error::other("the disk failed to sync"));
        }
        let entry = Entry::Operation { path: self.path.clone(), operation: Operation::Sync { node: self.node } };
        match state.bug {
            Some(DiskBug::EarlySync) => state.deferred_sync = Some(entry),
            _ => state.journal.push(entry),
        }
        Ok(())
    }
}

/// Writes `bytes` at `position` of `file`, and fills a gap before it with zeros.
pub(crate) fn overwrite(file: &mut Vec<u8>, position: u64, bytes: &[u8]) {
    let (start, end) = (position as usize, position as usize + bytes.len());
    if file.len() < end {
        file.resize(end, 0);
    }
    file[start..end].copy_from_slice(bytes);
}
