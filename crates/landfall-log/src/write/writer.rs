//! The way to the one thread that writes ([`crate::write::work`]).
//!
//! While one group is being synced the next one gathers in the queue, so the number of syncs follows what the disk
//! can do and not the number of publishers. The queue is bounded: publishers wait when the disk does not keep up.
//!
//! Order: what entered the queue first is written first. Within a partition that is the order of the offsets.
//!
//! The first write or sync that fails stops the log. The pages that were to be synced may be gone from memory, so a
//! second sync that succeeds would prove nothing; only reading the files anew, by reopening the log, tells what is
//! there. Publishers of the failed group are told `Unknown`, all later ones are refused. A full disk is no such
//! failure: it shows before anything is written, the messages are refused, and the next ones may find room.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use landfall_core::{Error, ErrorKind, Result, TopicName};
use tokio::sync::{mpsc, oneshot};
use tracing::error;

use crate::lock::FolderLock;
use crate::options::Options;
use crate::topic::open::{Topic, Topics};
use crate::write::appender::Part;
use crate::write::awake::Waiting;
use crate::write::store::{Placed, Store};
use crate::write::work::Work;

/// Requests that may wait for the writer.
const QUEUE: usize = 1024;

pub(crate) enum Command {
    Append(Append),
    Create(TopicName, oneshot::Sender<Result<Arc<Topic>>>),
    /// A change to topics, after everything that was queued before it.
    Change(Change),
    Close,
}

pub(crate) type Change = Box<dyn FnOnce(&mut Work) + Send>;

/// Messages that are to be stored, and whoever waits for the answer.
#[derive(Debug)]
pub(crate) struct Append {
    pub(crate) parts: Vec<Part>,
    /// How many messages it has.
    pub(crate) messages: u64,
    pub(crate) placed: Vec<Placed>,
    pub(crate) reply: oneshot::Sender<Answer>,
}

impl Append {
    /// Whether it has to wait for messages of the same producer.
    pub(crate) fn is_early(&self) -> bool {
        self.placed.iter().any(|placed| matches!(placed, Placed::Early(_)))
    }

    /// Tells where its messages are. A reply that nobody waits for any more is no error, here and below.
    pub(crate) fn answer_placed(self) {
        let _ = self.reply.send(Answer::Placed(self.placed));
    }
}

/// What became of the parts of one request.
#[derive(Debug)]
pub(crate) enum Answer {
    /// As durable as the log was asked to make it; where each part is.
    Placed(Vec<Placed>),
    /// Nothing was written.
    Refused(String),
    /// It may or may not be there after the log is reopened.
    Unknown(String),
}

/// The way to the writer's thread.
#[derive(Debug)]
pub(crate) struct Writer {
    /// `None` only while it is being dropped.
    queue: Option<mpsc::Sender<Command>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    waiting: Waiting,
    failure: Arc<OnceLock<String>>,
}

impl Writer {
    /// Starts the thread. It holds `lock` until it has ended, so that nobody opens the folder while it writes.
    pub(crate) fn start(
        topics: Arc<Topics>,
        options: Options,
        store: Store,
        lock: Arc<Option<FolderLock>>,
    ) -> Result<Self> {
        let unavailable = |what: &'static str| {
            move |error: std::io::Error| Error::new(ErrorKind::Unavailable, what).with_source(error)
        };
        let (queue, commands) = mpsc::channel(QUEUE);
        let failure = Arc::new(OnceLock::new());
        let clock = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let clock = clock.map_err(unavailable("cannot start a clock"))?;
        let work = Work::new(topics, options, store, Arc::clone(&failure), clock, lock);
        let thread = std::thread::Builder::new()
            .name("landfall-log-writer".into())
            .spawn(move || work.run(commands))
            .map_err(unavailable("cannot start a thread"))?;
        Ok(Self { queue: Some(queue), thread: Mutex::new(Some(thread)), waiting: Waiting::default(), failure })
    }

    /// Why the log stopped taking messages, if it has.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    pub(crate) async fn append(&self, parts: Vec<Part>) -> Answer {
        let (reply, answer) = oneshot::channel();
        if self.send(Command::Append(Append { parts, messages: 0, placed: Vec::new(), reply })).await.is_err() {
            return Answer::Refused(CLOSED.into());
        }
        let answer = self.waiting.wait(answer).await;
        answer.unwrap_or_else(|| Answer::Unknown("the log's writer ended before it answered".into()))
    }

    pub(crate) async fn create_topic(&self, name: TopicName) -> Result<Arc<Topic>> {
        let (reply, answer) = oneshot::channel();
        let closed = || Error::new(ErrorKind::Unavailable, CLOSED);
        self.send(Command::Create(name, reply)).await.map_err(|()| closed())?;
        answer.await.map_err(|_| closed())?
    }

    /// Runs `change` in the writer's thread, where nobody else changes files of topics.
    pub(crate) async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Store) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let closed = || Error::new(ErrorKind::Unavailable, CLOSED);
        let change: Change = Box::new(|work| drop(reply.send(work.change(change))));
        self.send(Command::Change(change)).await.map_err(|()| closed())?;
        answer.await.map_err(|_| closed())?
    }

    /// Ends the thread after everything that was queued before. Does nothing the second time.
    pub(crate) async fn close(&self) {
        // An error says that the thread has ended already.
        let _ = self.send(Command::Close).await;
        if let Some(thread) = self.take_thread() {
            let joined = tokio::task::spawn_blocking(move || thread.join()).await;
            if !matches!(joined, Ok(Ok(()))) {
                error!("the thread that writes the log panicked");
            }
        }
    }

    async fn send(&self, command: Command) -> std::result::Result<(), ()> {
        match &self.queue {
            Some(queue) => queue.send(command).await.map_err(|_| ()),
            None => Err(()),
        }
    }

    fn take_thread(&self) -> Option<JoinHandle<()>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

pub(crate) const CLOSED: &str = "the log is closed";

impl Drop for Writer {
    /// Waits for what was queued, so that whoever dropped the log can open it again.
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.take_thread() {
            // A panic was reported by the thread itself, and there is nobody here to tell.
            let _ = thread.join();
        }
    }
}
