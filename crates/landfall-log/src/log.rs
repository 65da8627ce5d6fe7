//! A log that is open for writing.

use std::path::Path;
use std::sync::{Arc, Weak};

use landfall_core::{Error, ErrorKind, Result};
use tokio::sync::watch;

use crate::disk::{Disk, SystemDisk};
use crate::durable::{create_directories, create_directory, sync_directory, sync_name};
use crate::format;
use crate::group::all::Groups;
use crate::group::flusher::Flusher;
use crate::lock::FolderLock;
use crate::maintain::keeper::Keeper;
use crate::options::Options;
use crate::read::read_only::ReadOnlyLog;
use crate::topic::deletion;
use crate::topic::open::Topics;
use crate::topic::settings::TopicSettings;
use crate::write::buffers::Buffers;
use crate::write::producers::Registry;
use crate::write::store::Store;
use crate::write::writer::Writer;

/// The embedded broker: cheap to clone, every clone is the same log. [`landfall_core::Broker`] says what it does.
///
/// When the last clone and the last subscriber are dropped, what was queued is written and the folder is free again;
/// [`Log::close`] does the same without waiting for them.
#[derive(Debug, Clone)]
pub struct Log {
    /// Dropped before the rest: the last one waits for the round of maintenance that is under way. The keeper's own log has none.
    keeper: Option<Arc<Keeper>>,
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    options: Options,
    topics: Arc<Topics>,
    groups: Arc<Groups>,
    buffers: Arc<Buffers>,
    writer: Writer,
    flusher: Arc<Flusher>,
    /// Held during a round of maintenance.
    maintaining: tokio::sync::Mutex<()>,
    closed: watch::Sender<bool>,
}

/// A log that ends with the last [`Log`] although somebody knows it.
#[derive(Debug)]
pub(crate) struct WeakLog(Weak<Inner>);

impl WeakLog {
    pub(crate) fn upgrade(&self) -> Option<Log> {
        self.0.upgrade().map(|inner| Log { keeper: None, inner })
    }
}

impl Log {
    /// Opens the log in the folder `dir`, which is created if need be; nobody else can until it is closed. Cuts off
    /// what an earlier process left unfinished. Blocks while it reads the last segment of every partition.
    ///
    /// Refused as `InUse` if another process has it open, as `Corrupt` if stored bytes are not what was written, and
    /// as `Unsupported` if a newer build wrote it.
    pub fn open(dir: impl AsRef<Path>, options: Options) -> Result<Self> {
        let folder = dir.as_ref();
        options.check()?;
        create_directories(&SystemDisk, folder)?;
        Self::open_locked(Arc::new(SystemDisk), folder, options, Some(FolderLock::acquire(folder)?))
    }

    /// Opens the log in the folder `dir` of another disk, which is the caller's alone. For tests of what a disk may do.
    pub fn open_on(disk: Arc<dyn Disk>, dir: impl AsRef<Path>, options: Options) -> Result<Self> {
        options.check()?;
        create_directories(&*disk, dir.as_ref())?;
        Self::open_locked(disk, dir.as_ref(), options, None)
    }

    fn open_locked(disk: Arc<dyn Disk>, folder: &Path, options: Options, lock: Option<FolderLock>) -> Result<Self> {
        let lock = Arc::new(lock);
        // A process may have died before it could sync what is found here, so that is done before anything relies on it.
        if format::check(&*disk, folder)? {
            sync_directory(&*disk, folder)?;
        } else {
            sync_name(&*disk, folder)?;
            format::write(&*disk, folder)?;
        }
        let (topics, groups) = (folder.join("topics"), folder.join("groups"));
        create_directory(&*disk, &topics)?;
        create_directory(&*disk, &groups)?;
        deletion::resume(&*disk, &topics, &groups)?;
        let topics = Arc::new(Topics::recover(Arc::clone(&disk), topics)?);
        let groups = Arc::new(Groups::recover(Arc::clone(&disk), groups, &topics, options.session_timeout)?);
        let buffers = Arc::new(Buffers::default());
        let registry = Registry::open(Arc::clone(&disk), folder)?;
        let store = Store::open(options, Arc::clone(&buffers), Arc::clone(&topics), registry)?;
        let writer = Writer::start(Arc::clone(&topics), options, store, Arc::clone(&lock))?;
        let flusher = Arc::new(Flusher::start(lock)?);
        let closed = watch::Sender::new(false);
        let maintaining = tokio::sync::Mutex::default();
        let inner = Arc::new(Inner { options, topics, groups, buffers, writer, flusher, maintaining, closed });
        let keeper = Keeper::start(WeakLog(Arc::downgrade(&inner)), options.maintenance)?;
        Ok(Self { keeper: Some(Arc::new(keeper)), inner })
    }

    /// Looks into the log in the folder `dir` without opening it: works beside the process that has it open.
    pub fn open_read_only(dir: impl AsRef<Path>) -> Result<ReadOnlyLog> {
        ReadOnlyLog::open(dir.as_ref())
    }

    /// Whether it still takes messages; if not, the error says since which failure.
    pub fn health(&self) -> Result<()> {
        if *self.inner.closed.borrow() {
            return Err(Error::new(ErrorKind::Unavailable, "the log is closed"));
        }
        match self.writer().failure() {
            Some(failure) => Err(Error::new(ErrorKind::Unavailable, failure)),
            None => Ok(()),
        }
    }

    /// Writes what was queued, saves how far the groups have come, and gives the folder back. Subscribers end;
    /// what is published after this is refused. An error says that progress of a group could not be saved.
    pub async fn close(&self) -> Result<()> {
        self.inner.closed.send_replace(true);
        if let Some(keeper) = &self.keeper {
            keeper.close().await;
        }
        self.writer().close().await;
        self.flusher().close().await
    }

    /// What a topic gets that is made without settings of its own.
    pub fn default_settings(&self) -> TopicSettings {
        self.options().topic
    }

    pub(crate) fn options(&self) -> &Options {
        &self.inner.options
    }

    pub(crate) fn topics(&self) -> &Arc<Topics> {
        &self.inner.topics
    }

    pub(crate) fn every_group(&self) -> &Arc<Groups> {
        &self.inner.groups
    }

    pub(crate) fn buffers(&self) -> &Buffers {
        &self.inner.buffers
    }

    pub(crate) fn writer(&self) -> &Writer {
        &self.inner.writer
    }

    pub(crate) fn maintaining(&self) -> &tokio::sync::Mutex<()> {
        &self.inner.maintaining
    }

    pub(crate) fn flusher(&self) -> &Arc<Flusher> {
        &self.inner.flusher
    }

    /// Becomes true when the log is closed.
    pub(crate) fn closed(&self) -> watch::Receiver<bool> {
        self.inner.closed.subscribe()
    }
}
