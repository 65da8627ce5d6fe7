//! The one thread that writes: it takes what has queued up, writes it, syncs once, and answers everybody.
//!
//! While one group is being synced the next one gathers in the queue, so the number of syncs follows what the disk
//! can do and not the number of publishers. The queue is bounded: publishers wait when the disk does not keep up.
//!
//! Order: what entered the queue first is written first. Within a partition that is the order of the offsets.
//!
//! The first write or sync that fails stops the log. The pages that were to be synced may be gone from memory, so a
//! second sync that succeeds would prove nothing; only reading the files anew, by reopening the log, tells what is
//! there. Publishers of the failed group are told `Unknown`, all later ones are refused.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use landfall_core::{Error, ErrorKind, Result, TopicName};
use tokio::sync::{mpsc, oneshot};
use tracing::error;

use crate::admin;
use crate::appender::{Appender, Part};
use crate::buffers::Buffers;
use crate::durable::is_full;
use crate::lock::FolderLock;
use crate::options::Options;
use crate::partition::Partition;
use crate::topic::{Topic, Topics};

/// Requests that may wait for the writer.
const QUEUE: usize = 1024;
/// A group is not filled beyond this: its publishers wait for all of it.
const GROUP_BYTES: usize = 8 * 1024 * 1024;

enum Command {
    Append(Append),
    Create(TopicName, oneshot::Sender<Result<Arc<Topic>>>),
    /// A change to topics, after everything that was queued before it.
    Change(Change),
    Close,
}

type Change = Box<dyn FnOnce(&mut Work) + Send>;

struct Append {
    parts: Vec<Part>,
    reply: oneshot::Sender<Answer>,
}

/// What became of the parts of one request.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Synced; the base offset of each part.
    Synced(Vec<u64>),
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
    failure: Arc<OnceLock<String>>,
}

impl Writer {
    /// Starts the thread. It holds `lock` until it has ended, so that nobody opens the folder while it writes.
    pub(crate) fn start(
        topics: Arc<Topics>,
        options: Options,
        buffers: Arc<Buffers>,
        lock: Arc<Option<FolderLock>>,
    ) -> Result<Self> {
        let (queue, commands) = mpsc::channel(QUEUE);
        let failure = Arc::new(OnceLock::new());
        let appenders = HashMap::new();
        let work = Work { topics, options, buffers, appenders, failure: Arc::clone(&failure), _lock: lock };
        let thread = std::thread::Builder::new()
            .name("landfall-log-writer".into())
            .spawn(move || work.run(commands))
            .map_err(|error| Error::new(ErrorKind::Unavailable, "cannot start a thread").with_source(error))?;
        Ok(Self { queue: Some(queue), thread: Mutex::new(Some(thread)), failure })
    }

    /// Why the log stopped taking messages, if it has.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    pub(crate) async fn append(&self, parts: Vec<Part>) -> Answer {
        let (reply, answer) = oneshot::channel();
        if self.send(Command::Append(Append { parts, reply })).await.is_err() {
            return Answer::Refused(CLOSED.into());
        }
        answer.await.unwrap_or_else(|_| Answer::Unknown("the log's writer ended before it answered".into()))
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
        change: impl FnOnce() -> Result<T> + Send + 'static,
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

const CLOSED: &str = "the log is closed";

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

struct Work {
    topics: Arc<Topics>,
    options: Options,
    buffers: Arc<Buffers>,
    /// By the partition's id; opened when a partition is first written to.
    appenders: HashMap<u64, Appender>,
    failure: Arc<OnceLock<String>>,
    _lock: Arc<Option<FolderLock>>,
}

impl Work {
    fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        let mut group = Vec::new();
        while let Some(command) = commands.blocking_recv() {
            let (mut bytes, mut next, mut open) = (0, Some(command), true);
            while let Some(command) = next {
                match command {
                    Command::Append(append) => {
                        bytes += append.parts.iter().map(|part| part.records.len()).sum::<usize>();
                        group.push(append);
                    }
                    // A reply that nobody waits for any more is no error, here and below.
                    Command::Create(name, reply) => drop(reply.send(self.create(&name))),
                    Command::Change(change) => {
                        self.commit(&mut group);
                        bytes = 0;
                        change(&mut self);
                    }
                    Command::Close => {
                        open = false;
                        break;
                    }
                }
                next = if bytes < GROUP_BYTES { commands.try_recv().ok() } else { None };
            }
            self.commit(&mut group);
            if !open {
                break;
            }
        }
        // Whoever came while it was being closed learns that nothing was written.
        commands.close();
        while let Some(command) = commands.blocking_recv() {
            if let Command::Append(append) = command {
                let _ = append.reply.send(Answer::Refused(CLOSED.into()));
            }
        }
    }

    fn create(&self, name: &TopicName) -> Result<Arc<Topic>> {
        if let Some(failure) = self.failure.get() {
            return Err(Error::new(ErrorKind::Unavailable, failure.clone()));
        }
        let created = admin::create(&self.topics, name, self.options.partitions, self.options.topic);
        created.inspect_err(|error| self.stop_unless_full(error))
    }

    fn change<T>(&mut self, change: impl FnOnce() -> Result<T>) -> Result<T> {
        if let Some(failure) = self.failure.get() {
            return Err(Error::new(ErrorKind::Unavailable, failure.clone()));
        }
        let changed = change();
        if let Err(error) = &changed
            && !matches!(error.kind(), ErrorKind::Invalid | ErrorKind::NotFound | ErrorKind::Conflict)
        {
            self.stop_unless_full(error);
        }
        self.appenders.retain(|_, appender| !appender.partition().is_deleted());
        changed
    }

    /// For changes that can be begun anew whatever was done of them: without room nothing was, and there may be later.
    fn stop_unless_full(&self, error: &Error) {
        if !is_full(error) {
            self.stop(error);
        }
    }

    /// Takes nothing more, because of `error`.
    fn stop(&self, error: &Error) {
        error!(%error, "the log stops taking messages until it is reopened");
        // It can only be set once, and the first failure is the one to tell of.
        let _ =
            self.failure.set(format!("the log takes no messages until it is reopened, because of a failure: {error}"));
    }

    /// Writes and syncs `group` and answers everybody in it.
    fn commit(&mut self, group: &mut Vec<Append>) {
        if let Some(failure) = self.failure.get() {
            for append in group.drain(..) {
                let _ = append.reply.send(Answer::Refused(failure.clone()));
            }
            return;
        }
        let is_gone = |append: &mut Append| append.parts.iter().any(|part| part.partition.is_deleted());
        for append in group.extract_if(.., is_gone) {
            let _ = append.reply.send(Answer::Refused("a topic of the batch was deleted a moment ago".into()));
        }
        let written = self.write(group);
        if let Err(error) = &written {
            self.stop(error);
        }
        for Append { parts, reply } in group.drain(..) {
            let answer = match &written {
                Ok(()) => Answer::Synced(parts.iter().map(|part| part.base_offset).collect()),
                Err(error) => Answer::Unknown(format!("the log could not finish the write: {error}")),
            };
            let _ = reply.send(answer);
            parts.into_iter().for_each(|part| self.buffers.give_back(part.records));
        }
    }

    fn write(&mut self, group: &mut [Append]) -> Result<()> {
        let mut by_partition: BTreeMap<u64, Vec<&mut Part>> = BTreeMap::new();
        for part in group.iter_mut().flat_map(|append| &mut append.parts) {
            by_partition.entry(part.partition.id()).or_default().push(part);
        }
        for parts in by_partition.values_mut() {
            if let Some(part) = parts.first() {
                let partition = Arc::clone(&part.partition);
                self.appender(partition)?.append(parts)?;
            }
        }
        let touched = || by_partition.keys();
        for id in touched() {
            if let Some(appender) = self.appenders.get_mut(id) {
                appender.sync()?;
            }
        }
        // Only now, so that after an error nothing of the group is seen.
        for id in touched() {
            if let Some(appender) = self.appenders.get_mut(id) {
                appender.publish();
            }
        }
        Ok(())
    }

    fn appender(&mut self, partition: Arc<Partition>) -> Result<&mut Appender> {
        match self.appenders.entry(partition.id()) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => Ok(entry.insert(Appender::open(partition, self.options)?)),
        }
    }
}
