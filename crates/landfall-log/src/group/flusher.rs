//! The flusher thread saves the progress of groups.
//!
//! A sync per acknowledgement would cost more than the messages. So progress is saved shortly after the first
//! acknowledgement, together with all that arrive meanwhile. A crash loses at most that interval: acknowledged
//! messages are redelivered, none is skipped.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use landfall_core::{Error, ErrorKind, Result};
use tokio::sync::oneshot;
use tracing::warn;

use crate::group::progress::Group;
use crate::lock::FolderLock;

/// Maximum delay before progress is saved.
const DELAY: Duration = Duration::from_millis(20);
/// Delay before a failed save is retried.
const RETRY: Duration = Duration::from_secs(1);

enum Command {
    Save(Arc<Group>),
    SaveNow(Arc<Group>, oneshot::Sender<Result<()>>),
    Flush(oneshot::Sender<Result<()>>),
    Close,
}

/// The handle to the flusher thread.
#[derive(Debug)]
pub(crate) struct Flusher {
    /// `None` only while it is being dropped.
    queue: Option<mpsc::Sender<Command>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Flusher {
    /// Starts the thread. It holds `lock` until it ends, so that no other process opens the folder while it writes.
    pub(crate) fn start(lock: Arc<Option<FolderLock>>) -> Result<Self> {
        let (queue, commands) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("landfall-log-flusher".into())
            .spawn(move || {
                run(&commands);
                drop(lock);
            })
            .map_err(|error| {
                Error::new(ErrorKind::Unavailable, "cannot start the flusher thread").with_source(error)
            })?;
        Ok(Self { queue: Some(queue), thread: Mutex::new(Some(thread)) })
    }

    /// Schedules `group` to be saved soon.
    pub(crate) fn save(&self, group: Arc<Group>) -> Result<()> {
        self.send(Command::Save(group))
    }

    /// Saves `group` now. A failed save is retried later.
    pub(crate) async fn save_now(&self, group: Arc<Group>) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::SaveNow(group, reply))?;
        answer.await.map_err(|_| closed())?
    }

    /// Saves all unsaved progress now.
    pub(crate) async fn flush(&self) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Flush(reply))?;
        answer.await.map_err(|_| closed())?
    }

    /// Saves everything and stops the thread. Does nothing the second time.
    pub(crate) async fn close(&self) -> Result<()> {
        let Some(thread) = self.take_thread() else { return Ok(()) };
        let flushed = self.flush().await;
        // An error means that the thread has already ended.
        let _ = self.send(Command::Close);
        let joined = tokio::task::spawn_blocking(move || thread.join()).await;
        match joined {
            Ok(Ok(())) => flushed,
            _ => Err(Error::new(ErrorKind::Internal, "the flusher thread, which saves groups' offsets, panicked")),
        }
    }

    fn send(&self, command: Command) -> Result<()> {
        let queue = self.queue.as_ref().ok_or_else(closed)?;
        queue.send(command).map_err(|_| closed())
    }

    fn take_thread(&self) -> Option<JoinHandle<()>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Flusher {
    /// Waits until the last progress is saved, so that the caller can reopen the log after dropping it.
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.take_thread() {
            // The panic hook has already reported a panic.
            let _ = thread.join();
        }
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Unavailable, "the log is closed; messages acknowledged after that are redelivered")
}

fn run(commands: &mpsc::Receiver<Command>) {
    let mut unsaved: Vec<Arc<Group>> = Vec::new();
    let mut due: Option<Instant> = None;
    loop {
        let command = match due {
            None => commands.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(due) => commands.recv_timeout(due.saturating_duration_since(Instant::now())),
        };
        match command {
            Ok(Command::Save(group)) => {
                unsaved.push(group);
                due.get_or_insert_with(|| Instant::now() + DELAY);
            }
            Ok(Command::SaveNow(group, reply)) => {
                let saved = group.save();
                if saved.is_err() {
                    unsaved.push(group);
                    due.get_or_insert_with(|| Instant::now() + RETRY);
                }
                // A send error means that the caller stopped waiting.
                let _ = reply.send(saved);
            }
            Ok(Command::Flush(reply)) => {
                let saved = save(&mut unsaved);
                due = saved.is_err().then(|| Instant::now() + RETRY);
                // A send error means that the caller stopped waiting.
                let _ = reply.send(saved);
            }
            Err(RecvTimeoutError::Timeout) => {
                let saved = save(&mut unsaved);
                due = saved.is_err().then(|| Instant::now() + RETRY);
                if let Err(error) = saved {
                    warn!(%error, "cannot save the progress of a group, retrying");
                }
            }
            Ok(Command::Close) | Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    if let Err(error) = save(&mut unsaved) {
        warn!(%error, "cannot save the progress of a group on close; its last messages will be redelivered");
    }
}

/// Saves each group, keeps those that failed, and returns the first error.
fn save(unsaved: &mut Vec<Arc<Group>>) -> Result<()> {
    let mut outcome = Ok(());
    unsaved.retain(|group| match group.save() {
        Ok(()) => false,
        Err(error) => {
            if outcome.is_ok() {
                outcome = Err(error);
            }
            true
        }
    });
    outcome
}
