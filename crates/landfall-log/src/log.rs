//! A log that is open for writing.

use std::path::Path;
use std::sync::{Arc, Weak};

use landfall_core::{Error, ErrorKind, Result};
use tokio::sync::watch;

use crate::disk::{Disk, SystemDisk};
use crate::durable::{create_directories, create_directory, sync_directory, sync_name};
use crate::format;
use crate::group::flusher::Flusher;
use crate::group::groups::Groups;
use crate::lock::FolderLock;
use crate::maintain::thread::MaintenanceThread;
use crate::options::Options;
use crate::read::read_only::ReadOnlyLog;
use crate::topic::deletion;
use crate::topic::open::Topics;
use crate::topic::settings::TopicSettings;
use crate::write::buffer_pool::BufferPool;
use crate::write::producers::Registry;
use crate::write::store::Store;
use crate::write::writer::Writer;

/// The embedded broker. Cheap to clone; all clones share one log. It implements [`landfall_core::Broker`].
///
/// Dropping the last clone and the last subscriber writes queued messages and releases the folder. [`Log::close`] does
/// the same without waiting for the clones to be dropped.
#[derive(Debug, Clone)]
pub struct Log {
    /// Dropped before `inner`: the last clone waits for the running maintenance round. `None` in the maintenance
    /// thread's own handle.
    maintenance: Option<Arc<MaintenanceThread>>,
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    options: Options,
    topics: Arc<Topics>,
    groups: Arc<Groups>,
    buffers: Arc<BufferPool>,
    writer: Writer,
    flusher: Arc<Flusher>,
    /// Locked during a maintenance round.
    maintenance_lock: tokio::sync::Mutex<()>,
    closed: watch::Sender<bool>,
}

/// A reference that does not keep the log open.
#[derive(Debug)]
pub(crate) struct WeakLog(Weak<Inner>);

impl WeakLog {
    pub(crate) fn upgrade(&self) -> Option<Log> {
        self.0.upgrade().map(|inner| Log { maintenance: None, inner })
    }
}

impl Log {
    /// Opens the log in the folder `dir`, creating it if needed, and holds it exclusively until closed. Discards the
    /// unfinished tail that an earlier process left. Blocks while it reads the last segment of every partition.
    ///
    /// `InUse` if another process has it open, `Corrupt` if stored bytes differ from what was written, `Unsupported`
    /// if a newer build wrote it.
    pub fn open(dir: impl AsRef<Path>, options: Options) -> Result<Self> {
        let folder = dir.as_ref();
        options.check()?;
        create_directories(&SystemDisk, folder)?;
        Self::open_locked(Arc::new(SystemDisk), folder, options, Some(FolderLock::acquire(folder)?))
    }

    /// Opens the log in the folder `dir` of another disk without a lock; the caller guarantees exclusive access. For
    /// fault-injection tests.
    pub fn open_on(disk: Arc<dyn Disk>, dir: impl AsRef<Path>, options: Options) -> Result<Self> {
        options.check()?;
        create_directories(&*disk, dir.as_ref())?;
        Self::open_locked(disk, dir.as_ref(), options, None)
    }

    fn open_locked(disk: Arc<dyn Disk>, folder: &Path, options: Options, lock: Option<FolderLock>) -> Result<Self> {
        let lock = Arc::new(lock);
        // A process may have died before it synced these entries, so sync them before relying on them.
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
        let buffers = Arc::new(BufferPool::default());
        let registry = Registry::open(Arc::clone(&disk), folder)?;
        let store = Store::open(options, Arc::clone(&buffers), Arc::clone(&topics), registry)?;
        let writer = Writer::start(Arc::clone(&topics), options, store, Arc::clone(&lock))?;
        let flusher = Arc::new(Flusher::start(lock)?);
        let closed = watch::Sender::new(false);
        let maintenance_lock = tokio::sync::Mutex::default();
        let inner = Arc::new(Inner { options, topics, groups, buffers, writer, flusher, maintenance_lock, closed });
        let maintenance = MaintenanceThread::start(WeakLog(Arc::downgrade(&inner)), options.maintenance)?;
        Ok(Self { maintenance: Some(Arc::new(maintenance)), inner })
    }

    /// Opens the log in the folder `dir` for reading only. Works while another process has it open for writing.
    pub fn open_read_only(dir: impl AsRef<Path>) -> Result<ReadOnlyLog> {
        ReadOnlyLog::open(dir.as_ref())
    }

    /// Whether the log accepts messages; otherwise the error names the failure that stopped it.
    pub fn health(&self) -> Result<()> {
        if *self.inner.closed.borrow() {
            return Err(Error::new(ErrorKind::Unavailable, "the log is closed"));
        }
        match self.writer().failure() {
            Some(failure) => Err(Error::new(ErrorKind::Unavailable, failure)),
            None => Ok(()),
        }
    }

    /// Writes queued messages, saves the progress of the groups, and releases the folder. Subscribers end, and later
    /// publishes are refused. An error means that the progress of a group could not be saved.
    pub async fn close(&self) -> Result<()> {
        self.inner.closed.send_replace(true);
        if let Some(maintenance) = &self.maintenance {
            maintenance.close().await;
        }
        self.writer().close().await;
        self.flusher().close().await
    }

    /// The settings of a topic that is created without its own.
    pub fn default_settings(&self) -> TopicSettings {
        self.options().topic
    }

    pub(crate) fn options(&self) -> &Options {
        &self.inner.options
    }

    pub(crate) fn topics(&self) -> &Arc<Topics> {
        &self.inner.topics
    }

    pub(crate) fn all_groups(&self) -> &Arc<Groups> {
        &self.inner.groups
    }

    pub(crate) fn buffers(&self) -> &BufferPool {
        &self.inner.buffers
    }

    pub(crate) fn writer(&self) -> &Writer {
        &self.inner.writer
    }

    pub(crate) fn maintenance_lock(&self) -> &tokio::sync::Mutex<()> {
        &self.inner.maintenance_lock
    }

    pub(crate) fn flusher(&self) -> &Arc<Flusher> {
        &self.inner.flusher
    }

    /// Becomes true when the log is closed.
    pub(crate) fn closed(&self) -> watch::Receiver<bool> {
        self.inner.closed.subscribe()
    }
}
