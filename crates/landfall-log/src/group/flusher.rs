//! The thread that saves how far groups have come.
//!
//! Acknowledgements come one by one and a sync each would cost more than the messages. So progress is saved a moment
//! after the first acknowledgement, with whatever came in between. A crash loses at most that moment: finished
//! messages are delivered again, none is skipped.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use landfall_core::{Error, ErrorKind, Result};
use tokio::sync::oneshot;
use tracing::warn;

use crate::group::progress::Group;
use crate::lock::FolderLock;

/// How long progress may wait to be saved.
const DELAY: Duration = Duration::from_millis(20);
/// How long after a failure the next try comes.
const RETRY: Duration = Duration::from_secs(1);

enum Command {
    Save(Arc<Group>),
    SaveNow(Arc<Group>, oneshot::Sender<Result<()>>),
    Flush(oneshot::Sender<Result<()>>),
    Close,
}

/// The way to the flusher's thread.
#[derive(Debug)]
pub(crate) struct Flusher {
    /// `None` only while it is being dropped.
    queue: Option<mpsc::Sender<Command>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Flusher {
    /// Starts the thread. It holds `lock` until it has ended, so that nobody opens the folder while it writes.
    pub(crate) fn start(lock: Arc<Option<FolderLock>>) -> Result<Self> {
        let (queue, commands) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("landfall-log-flusher".into())
            .spawn(move || {
                run(&commands);
                drop(lock);
            })
            .map_err(|error| Error::new(ErrorKind::Unavailable, "cannot start a thread").with_source(error))?;
        Ok(Self { queue: Some(queue), thread: Mutex::new(Some(thread)) })
    }

    /// Sees to it that `group` is saved soon.
    pub(crate) fn save(&self, group: Arc<Group>) -> Result<()> {
        self.send(Command::Save(group))
    }

    /// Saves `group` now. If that fails, it is tried again later.
    pub(crate) async fn save_now(&self, group: Arc<Group>) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::SaveNow(group, reply))?;
        answer.await.map_err(|_| closed())?
    }

    /// Saves everything that is not saved yet, now.
    pub(crate) async fn flush(&self) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Flush(reply))?;
        answer.await.map_err(|_| closed())?
    }

    /// Saves everything and ends the thread. Does nothing the second time.
    pub(crate) async fn close(&self) -> Result<()> {
        let Some(thread) = self.take_thread() else { return Ok(()) };
        let flushed = self.flush().await;
        // An error says that the thread has ended already.
        let _ = self.send(Command::Close);
        let joined = tokio::task::spawn_blocking(move || thread.join()).await;
        match joined {
            Ok(Ok(())) => flushed,
            _ => Err(Error::new(ErrorKind::Internal, "the thread that saves the groups' offsets panicked")),
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
    /// Waits for the last progress to be saved, so that whoever dropped the log can open it again.
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.take_thread() {
            // A panic was reported by the thread itself, and there is nobody here to tell.
            let _ = thread.join();
        }
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Unavailable, "the log is closed; what was acknowledged after that is delivered again")
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
                // Nobody waits any more if this fails.
                let _ = reply.send(saved);
            }
            Ok(Command::Flush(reply)) => {
                let saved = save(&mut unsaved);
                due = saved.is_err().then(|| Instant::now() + RETRY);
                // Nobody waits any more if this fails.
                let _ = reply.send(saved);
            }
            Err(RecvTimeoutError::Timeout) => {
                let saved = save(&mut unsaved);
                due = saved.is_err().then(|| Instant::now() + RETRY);
                if let Err(error) = saved {
                    warn!(%error, "cannot save the progress of a group; trying again");
                }
            }
            Ok(Command::Close) | Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    if let Err(error) = save(&mut unsaved) {
        warn!(%error, "cannot save the progress of a group; what it finished last is delivered again");
    }
}

/// Saves each and keeps those that could not be saved; the first error.
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
