//! The handle to the writer thread ([`crate::write::writer_thread`]).
//!
//! While one group is being synced, the next one gathers in the queue. So the number of syncs follows the speed of the
//! disk and not the number of publishers. The queue is bounded: publishers wait when the disk falls behind.
//!
//! Order: requests are written in the order in which they enter the queue. Within a partition that is the order of the
//! offsets.
//!
//! The first failed write or sync stops the log. The pages that were to be synced may be gone from the page cache, so
//! a second sync that succeeds would prove nothing. Only reopening the log and rereading the files shows what was
//! stored. Publishers of the failed group get `Unknown`, and all later ones are refused. A full disk and
//! missing file descriptors do not stop the log: they are detected before anything is written, the messages are
//! refused, and later ones may succeed.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use landfall_core::{Error, ErrorKind, Result, TopicName};
use tokio::sync::{mpsc, oneshot};
use tracing::error;

use crate::lock::FolderLock;
use crate::options::Options;
use crate::topic::open::{Topic, Topics};
use crate::write::appender::Part;
use crate::write::spin_wait::ReplyWaiter;
use crate::write::store::{PartResult, Store};
use crate::write::writer_thread::WriterThread;

/// Maximum requests in the queue.
const QUEUE: usize = 1024;

pub(crate) enum Command {
    Append(Append),
    Create(TopicName, oneshot::Sender<Result<Arc<Topic>>>),
    /// A change to topics, after everything that was queued before it.
    Change(Change),
    Close,
}

pub(crate) type Change = Box<dyn FnOnce(&mut WriterThread) + Send>;

/// Messages to store, and the channel for the reply.
#[derive(Debug)]
pub(crate) struct Append {
    pub(crate) parts: Vec<Part>,
    /// The number of its messages.
    pub(crate) messages: u64,
    pub(crate) results: Vec<PartResult>,
    pub(crate) reply: oneshot::Sender<AppendReply>,
}

impl Append {
    /// Whether it must wait for earlier messages of the same producer.
    pub(crate) fn has_gap(&self) -> bool {
        self.results.iter().any(|result| matches!(result, PartResult::Gap(_)))
    }

    /// Replies with the results of its parts. A dropped receiver is not an error, here and below.
    pub(crate) fn complete(self) {
        let _ = self.reply.send(AppendReply::Completed(self.results));
    }
}

/// The reply to one request.
#[derive(Debug)]
pub(crate) enum AppendReply {
    /// As durable as [`Options::acknowledge`] demands; one result per part.
    Completed(Vec<PartResult>),
    /// Nothing was written.
    Refused(String),
    /// The messages may or may not be stored after the log is reopened.
    Unknown(String),
}

/// The handle to the writer thread.
#[derive(Debug)]
pub(crate) struct Writer {
    /// `None` only while it is being dropped.
    queue: Option<mpsc::Sender<Command>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    waiter: ReplyWaiter,
    failure: Arc<OnceLock<String>>,
    refusal: Arc<Mutex<Option<String>>>,
}

impl Writer {
    /// Starts the thread. It holds `lock` until it ends, so that no other process opens the folder while it writes.
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
        let (failure, refusal) = (Arc::new(OnceLock::new()), Arc::default());
        let timer = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let timer = timer.map_err(unavailable("cannot start the writer's timer"))?;
        let thread =
            WriterThread::new(topics, options, store, (Arc::clone(&failure), Arc::clone(&refusal)), timer, lock);
        let thread = std::thread::Builder::new()
            .name("landfall-log-writer".into())
            .spawn(move || thread.run(commands))
            .map_err(unavailable("cannot start the writer thread"))?;
        Ok(Self {
            queue: Some(queue),
            thread: Mutex::new(Some(thread)),
            waiter: ReplyWaiter::default(),
            failure,
            refusal,
        })
    }

    /// Why the last message was refused although the log works: a full disk, or no file descriptor.
    pub(crate) fn refusal(&self) -> Option<String> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The failure that stopped the log, if any.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    pub(crate) async fn append(&self, parts: Vec<Part>) -> AppendReply {
        let (reply, answer) = oneshot::channel();
        if self.send(Command::Append(Append { parts, messages: 0, results: Vec::new(), reply })).await.is_err() {
            return AppendReply::Refused(CLOSED.into());
        }
        let answer = self.waiter.wait(answer).await;
        answer.unwrap_or_else(|| AppendReply::Unknown("the log's writer thread ended before it replied".into()))
    }

    pub(crate) async fn create_topic(&self, name: TopicName) -> Result<Arc<Topic>> {
        let (reply, answer) = oneshot::channel();
        let closed = || Error::new(ErrorKind::Unavailable, CLOSED);
        self.send(Command::Create(name, reply)).await.map_err(|()| closed())?;
        answer.await.map_err(|_| closed())?
    }

    /// Runs `change` in the writer thread, the only one that changes files of topics.
    pub(crate) async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Store) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let closed = || Error::new(ErrorKind::Unavailable, CLOSED);
        let change: Change = Box::new(|thread| drop(reply.send(thread.change(change))));
        self.send(Command::Change(change)).await.map_err(|()| closed())?;
        answer.await.map_err(|_| closed())?
    }

    /// Stops the thread after everything queued before. Does nothing the second time.
    pub(crate) async fn close(&self) {
        // An error means that the thread has already ended.
        let _ = self.send(Command::Close).await;
        if let Some(thread) = self.take_thread() {
            let joined = tokio::task::spawn_blocking(move || thread.join()).await;
            if !matches!(joined, Ok(Ok(()))) {
                error!("the writer thread of the log panicked");
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
    /// Waits for queued requests, so that the caller can reopen the log after dropping it.
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.take_thread() {
            // The panic hook has already reported a panic.
            let _ = thread.join();
        }
    }
}
