//! A file system in memory that keeps a journal, and does what disks do: fail to sync, run full, stop in the middle.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use landfall_log::disk::{Access, Disk, File};
use tokio::sync::mpsc::UnboundedSender;

use crate::journal::{Entry, Operation};
use crate::marks::Mark;
use crate::tree::{Node, NodeId, Tree};

/// The way of one process to the disk. When the process is killed, everything it still does fails, and the next one
/// finds the files as they were at that moment.
#[derive(Debug, Clone)]
pub(crate) struct ModelDisk {
    shared: Arc<Mutex<State>>,
    life: u64,
}

#[derive(Debug)]
struct State {
    tree: Tree,
    journal: Vec<Entry>,
    life: u64,
    faults: Faults,
    /// A sync or a write has failed in this life.
    has_failed: bool,
    lie: Option<Lie>,
    works_ahead: bool,
    /// A sync that was answered but not done yet: [`Lie::EarlySync`].
    owed: Option<Entry>,
    watcher: Option<UnboundedSender<mpsc::Sender<()>>>,
}

/// What goes wrong, and when. Each happens once.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Faults {
    /// So many syncs of files succeed, and the next one fails.
    pub(crate) fail_sync_after: Option<u64>,
    /// So many writes succeed, and the next one fails after half of its bytes.
    pub(crate) fail_write_after: Option<u64>,
    /// So many changes succeed, and then the process is dead.
    pub(crate) kill_after: Option<u64>,
    /// Bytes in all files together; more does not fit.
    pub(crate) capacity: Option<u64>,
}

/// A planted bug: what the disk says it has done and has not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lie {
    /// Syncing a folder does nothing.
    NoFolderSync,
    /// A sync is done only when something else is done to the disk afterwards.
    EarlySync,
    /// A rename removes its target first.
    RenameInTwoSteps,
}

impl ModelDisk {
    /// A disk that holds `tree`, all of it durably.
    pub(crate) fn new(tree: Tree) -> Self {
        let (journal, faults) = (Vec::new(), Faults::default());
        let (lie, works_ahead) = (None, false);
        let state =
            State { tree, journal, life: 0, faults, has_failed: false, lie, works_ahead, owed: None, watcher: None };
        Self { shared: Arc::new(Mutex::new(state)), life: 0 }
    }

    pub(crate) fn with_lie(self, lie: Option<Lie>) -> Self {
        self.state().lie = lie;
        self
    }

    /// One on which room is made ahead: what happens when depends on the moment then, and a number does not give the
    /// same run again.
    pub(crate) fn working_ahead(self) -> Self {
        self.state().works_ahead = true;
        self
    }

    pub(crate) fn set_faults(&self, faults: Faults) {
        self.state().faults = faults;
    }

    /// From now on `watcher` is asked before each sync of a file, and the sync waits for its answer.
    pub(crate) fn watch_syncs(&self, watcher: Option<UnboundedSender<mpsc::Sender<()>>>) {
        self.state().watcher = watcher;
    }

    /// Ends the process that uses this disk, wherever it is; answers with the disk as the next process sees it.
    pub(crate) fn kill(&self) -> Self {
        let mut state = self.state();
        state.faults = Faults::default();
        state.has_failed = false;
        state.life = self.life + 1;
        Self { shared: Arc::clone(&self.shared), life: state.life }
    }

    /// Whether the process that uses this disk has ended.
    pub(crate) fn is_dead(&self) -> bool {
        self.state().life != self.life
    }

    /// Whether it has ended, or something went wrong that was to go wrong.
    pub(crate) fn is_troubled(&self) -> bool {
        let state = self.state();
        state.life != self.life || state.has_failed
    }

    pub(crate) fn tell(&self, mark: Mark) {
        self.state().journal.push(Entry::Told(mark));
    }

    pub(crate) fn take_journal(&self) -> Vec<Entry> {
        std::mem::take(&mut self.state().journal)
    }

    /// What the files hold as a process sees them, synced or not.
    pub(crate) fn tree(&self) -> Tree {
        self.state().tree.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For what only looks.
    fn look(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.state();
        if state.life == self.life { Ok(state) } else { Err(dead()) }
    }

    /// For what changes something.
    fn change(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.look()?;
        if is_due(&mut state.faults.kill_after) {
            state.life += 1;
            return Err(dead());
        }
        if let Some(owed) = state.owed.take() {
            state.journal.push(owed);
        }
        Ok(state)
    }
}

fn dead() -> io::Error {
    io::Error::other("the process was killed")
}

/// Counts down, and is true once.
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
        self.journal.push(Entry::Done { path: path.to_owned(), operation });
    }

    /// How many bytes more fit.
    fn room(&self) -> u64 {
        self.faults.capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(self.tree.file_bytes()))
    }
}

impl Disk for ModelDisk {
    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let state = self.look()?;
        let node = state.tree.find(folder)?;
        Ok(state.tree.folder(node)?.keys().cloned().collect())
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        let mut state = self.change()?;
        let place = state.tree.place(path)?;
        if state.tree.folder(place.0)?.contains_key(&place.1) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let node = state.tree.add(Node::Folder(BTreeMap::new()));
        state.tree.folder_mut(place.0).insert(place.1.clone(), node);
        state.done(path, Operation::CreateFolder { place, node });
        Ok(())
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let mut state = self.change()?;
        let node = state.tree.find(path)?;
        state.tree.folder(node)?;
        if state.lie != Some(Lie::NoFolderSync) {
            state.done(path, Operation::SyncFolder { node });
        }
        Ok(())
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        let mut state = self.look()?;
        let node = match state.tree.find(path) {
            Ok(node) => node,
            Err(error) if error.kind() == io::ErrorKind::NotFound && access == Access::Create => {
                drop(state);
                state = self.change()?;
                let place = state.tree.place(path)?;
                let node = state.tree.add(Node::File(Arc::default()));
                state.tree.folder_mut(place.0).insert(place.1.clone(), node);
                state.done(path, Operation::CreateFile { place, node });
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
        let mut state = self.change()?;
        let node = state.tree.find(from)?;
        let (source, target) = (state.tree.place(from)?, state.tree.place(to)?);
        let replaced = state.tree.folder(target.0)?.get(&target.1).copied();
        if let Some(replaced) = replaced {
            // A folder is never replaced, which the log does not ask for either.
            state.tree.file(replaced)?;
            if state.lie == Some(Lie::RenameInTwoSteps) {
                state.done(to, Operation::Remove { place: target.clone(), node: replaced });
            }
        }
        state.tree.folder_mut(source.0).remove(&source.1);
        state.tree.folder_mut(target.0).insert(target.1.clone(), node);
        state.done(from, Operation::Rename { from: source, to: target, node });
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.change()?;
        let node = state.tree.find(path)?;
        if state.tree.folder(node).is_ok_and(|entries| !entries.is_empty()) {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        let place = state.tree.place(path)?;
        state.tree.folder_mut(place.0).remove(&place.1);
        state.done(path, Operation::Remove { place, node });
        Ok(())
    }

    fn works_ahead(&self) -> bool {
        self.state().works_ahead
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
    fn change(&self) -> io::Result<MutexGuard<'_, State>> {
        if self.may_write { self.disk.change() } else { Err(io::ErrorKind::PermissionDenied.into()) }
    }
}

impl File for ModelFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let state = self.disk.look()?;
        let bytes = state.tree.file(self.node)?;
        let rest = bytes.get(position as usize..).unwrap_or_default();
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        let mut state = self.change()?;
        let grown = (position + bytes.len() as u64).saturating_sub(state.tree.file(self.node)?.len() as u64);
        let missing = grown.saturating_sub(state.room());
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
        let mut state = self.change()?;
        let grown = length.saturating_sub(state.tree.file(self.node)?.len() as u64);
        if grown > state.room() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        state.tree.file_mut(self.node).resize(length as usize, 0);
        state.done(&self.path, Operation::SetLength { node: self.node, length });
        Ok(())
    }

    /// The file system notes that the file is longer, and writes nothing.
    fn set_aside(&self, from: u64, to: u64) -> io::Result<()> {
        assert_eq!(from, self.length()?, "what is set aside begins where the file ends");
        self.set_length(to)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.disk.look()?.tree.file(self.node)?.len() as u64)
    }

    fn sync(&self) -> io::Result<()> {
        let watcher = self.disk.look()?.watcher.clone();
        if let Some(watcher) = watcher {
            let (go_on, answer) = mpsc::channel();
            // Whoever watched may have gone, and then nobody is waited for.
            if watcher.send(go_on).is_ok() {
                let _ = answer.recv();
            }
        }
        let mut state = self.disk.change()?;
        if is_due(&mut state.faults.fail_sync_after) {
            state.has_failed = true;
            state.done(&self.path, Operation::FailedSync { node: self.node });
            return Err(io::Error::other("the disk could not sync"));
        }
        let entry = Entry::Done { path: self.path.clone(), operation: Operation::Sync { node: self.node } };
        match state.lie {
            Some(Lie::EarlySync) => state.owed = Some(entry),
            _ => state.journal.push(entry),
        }
        Ok(())
    }
}

/// Puts `bytes` at `position` of `file`, with zeros before it if the file ended earlier.
pub(crate) fn overwrite(file: &mut Vec<u8>, position: u64, bytes: &[u8]) {
    let (start, end) = (position as usize, position as usize + bytes.len());
    if file.len() < end {
        file.resize(end, 0);
    }
    file[start..end].copy_from_slice(bytes);
}
