//! The one thread that writes: it takes what has queued up, writes it, syncs once, and answers everybody.
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

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use landfall_core::{Error, ErrorKind, Result, TopicName};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tracing::error;

use crate::admin;
use crate::appender::Part;
use crate::durable::is_full;
use crate::lock::FolderLock;
use crate::options::{Acknowledge, Flush, Gaps, Options};
use crate::producers::{Held, Limits, Ticket};
use crate::store::{Placed, Store};
use crate::topic::{Topic, Topics};

/// Requests that may wait for the writer.
const QUEUE: usize = 1024;
/// Whoever publishes one message after the other sends the next one about this long after the answer. To wait for it
/// awake costs a part of what the sync cost, and saves the time in which a sleeping thread is woken.
const LINGER: Duration = Duration::from_micros(50);
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

#[derive(Debug)]
struct Append {
    parts: Vec<Part>,
    /// How many messages it has.
    messages: u64,
    placed: Vec<Placed>,
    reply: oneshot::Sender<Answer>,
}

impl Append {
    fn is_early(&self) -> bool {
        self.placed.iter().any(|placed| matches!(placed, Placed::Early(_)))
    }

    // A reply that nobody waits for any more is no error, here and below.
    fn answer_placed(self) {
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
        let work = Work {
            held: HashMap::new(),
            patience: VecDeque::new(),
            topics,
            options,
            store,
            unsynced: Unsynced::default(),
            failure: Arc::clone(&failure),
            clock: clock.map_err(unavailable("cannot start a clock"))?,
            _lock: lock,
        };
        let thread = std::thread::Builder::new()
            .name("landfall-log-writer".into())
            .spawn(move || work.run(commands))
            .map_err(unavailable("cannot start a thread"))?;
        Ok(Self { queue: Some(queue), thread: Mutex::new(Some(thread)), failure })
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
    /// What waits for messages of the same producer, by the partition's id.
    held: HashMap<u64, Held<Append>>,
    /// When what is held is given up, in order.
    patience: VecDeque<(Instant, u64, Ticket)>,
    topics: Arc<Topics>,
    options: Options,
    store: Store,
    unsynced: Unsynced,
    failure: Arc<OnceLock<String>>,
    /// What the thread waits with when it must not wait for ever.
    clock: Runtime,
    _lock: Arc<Option<FolderLock>>,
}

/// What was written and waits to be synced.
#[derive(Default)]
struct Unsynced {
    messages: u64,
    /// When the first of it was written.
    since: Option<Instant>,
    /// Whoever is to be told only then.
    waiting: Vec<Append>,
}

impl Work {
    fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        loop {
            match self.next(&mut commands) {
                Next::Commands(first) => {
                    if !self.work_on(first, &mut commands) {
                        break;
                    }
                }
                Next::Time => {
                    self.give_up(Instant::now());
                    if self.is_flush_due() {
                        self.flush();
                    }
                }
                Next::End => break,
            }
        }
        self.flush();
        for append in self.held.values_mut().flat_map(Held::drain) {
            append.answer_placed();
        }
        if self.failure.get().is_none()
            && let Err(error) = self.store.close()
        {
            error!(%error, "the log's files could not be cut to their ends; the next start does it");
        }
        // Whoever came while it was being closed learns that nothing was written.
        commands.close();
        while let Some(command) = commands.blocking_recv() {
            if let Command::Append(append) = command {
                let _ = append.reply.send(Answer::Refused(CLOSED.into()));
            }
        }
    }

    /// Waits for something to do.
    fn next(&self, commands: &mut mpsc::Receiver<Command>) -> Next {
        let flush = self.unsynced.since.map(|since| since + self.options.flush.patience());
        let patience = self.patience.front().map(|(deadline, ..)| *deadline);
        let received = match flush.into_iter().chain(patience).min() {
            None => Ok(linger(commands).or_else(|| commands.blocking_recv())),
            Some(deadline) => self.clock.block_on(async { tokio::time::timeout_at(deadline, commands.recv()).await }),
        };
        match received {
            Ok(Some(command)) => Next::Commands(command),
            Ok(None) => Next::End,
            Err(_) => Next::Time,
        }
    }

    /// Works on `first` and what has queued up behind it, as one group. `false` if it was told to end.
    fn work_on(&mut self, first: Command, commands: &mut mpsc::Receiver<Command>) -> bool {
        let (mut group, mut bytes, mut next) = (Vec::new(), 0, Some(first));
        let mut goes_on = true;
        while let Some(command) = next {
            match command {
                Command::Append(append) => {
                    bytes += append.parts.iter().map(|part| part.records().len()).sum::<usize>();
                    self.take(append, &mut group);
                }
                Command::Create(name, reply) => drop(reply.send(self.create(&name))),
                Command::Change(change) => {
                    self.commit(std::mem::take(&mut group));
                    self.flush();
                    change(self);
                }
                Command::Close => {
                    goes_on = false;
                    break;
                }
            }
            next = if bytes < GROUP_BYTES { commands.try_recv().ok() } else { None };
        }
        self.commit(group);
        goes_on
    }

    fn create(&self, name: &TopicName) -> Result<Arc<Topic>> {
        if let Some(failure) = self.failure.get() {
            return Err(Error::new(ErrorKind::Unavailable, failure.clone()));
        }
        let created = admin::create(&self.topics, name, self.options.partitions, self.options.topic);
        created.inspect_err(|error| self.stop_unless_full(error))
    }

    /// Everything that was taken before is synced.
    fn change<T>(&mut self, change: impl FnOnce(&mut Store) -> Result<T>) -> Result<T> {
        if let Some(failure) = self.failure.get() {
            return Err(Error::new(ErrorKind::Unavailable, failure.clone()));
        }
        let changed = change(&mut self.store);
        if let Err(error) = &changed
            && !matches!(error.kind(), ErrorKind::Invalid | ErrorKind::NotFound | ErrorKind::Conflict)
        {
            self.stop_unless_full(error);
        }
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

    /// Gives the records of `append` their places, and those that waited for it. What was not answered and does not have
    /// to wait goes to `group`.
    fn take(&mut self, append: Append, group: &mut Vec<Append>) {
        let mut next = Some(append);
        while let Some(mut append) = next.take() {
            if let Some(failure) = self.failure.get() {
                let _ = append.reply.send(Answer::Refused(failure.clone()));
                return;
            }
            if append.parts.iter().any(|part| part.partition.is_deleted()) {
                let _ = append.reply.send(Answer::Refused("a topic of the batch was deleted a moment ago".into()));
                return;
            }
            match self.place(&mut append) {
                Ok(()) if append.is_early() => self.hold(append),
                Ok(()) => {
                    next = self.waiting_for(&append);
                    group.push(append);
                }
                Err(error) => {
                    self.stop(&error);
                    let _ = append.reply.send(unknown(&error));
                }
            }
        }
    }

    fn place(&mut self, append: &mut Append) -> Result<()> {
        // What was held is placed a second time.
        append.placed.clear();
        append.messages = 0;
        for part in &mut append.parts {
            append.messages += u64::from(part.count());
            append.placed.push(self.store.take(part)?);
        }
        Ok(())
    }

    /// Keeps `append` until what comes before it has come, if it may wait at all.
    fn hold(&mut self, append: Append) {
        let Gaps::Hold { batches, bytes, time } = self.options.gaps else { return append.answer_placed() };
        let Some((part, sequenced)) = append.parts.first().and_then(|part| Some((part, part.sequenced?))) else {
            return append.answer_placed();
        };
        let (id, size) = (part.partition.id(), part.records().len());
        let held = self.held.entry(id).or_insert_with(|| Held::new(Limits { batches, bytes }));
        match held.hold(sequenced.producer, sequenced.first, size, append) {
            Ok(ticket) => self.patience.push_back((Instant::now() + time, id, ticket)),
            Err(append) => append.answer_placed(),
        }
    }

    /// What waited for the messages of `append` and need not wait any more.
    fn waiting_for(&mut self, append: &Append) -> Option<Append> {
        let part = append.parts.first()?;
        let sequenced = part.sequenced?;
        let held = self.held.get_mut(&part.partition.id())?;
        let next_sequence = self.store.next_sequence(&part.partition, sequenced.producer).ok()?;
        held.take_next(sequenced.producer, next_sequence)
    }

    /// Answers what has waited for too long.
    fn give_up(&mut self, now: Instant) {
        while let Some((_, id, ticket)) = self.patience.pop_front_if(|(deadline, ..)| *deadline <= now) {
            if let Some(append) = self.held.get_mut(&id).and_then(|held| held.remove(ticket)) {
                append.answer_placed();
            }
        }
    }

    /// Writes `group` and answers whoever need not wait for a sync; syncs if that is due.
    fn commit(&mut self, mut group: Vec<Append>) {
        if group.is_empty() {
            return;
        }
        let messages: u64 = group.iter().map(|append| append.messages).sum();
        if self.options.acknowledge == Acknowledge::None {
            group.drain(..).for_each(Append::answer_placed);
        }
        let written = match self.failure.get() {
            Some(failure) => Err(Error::new(ErrorKind::Unavailable, failure.clone())),
            None => self.store.write().inspect_err(|error| self.stop(error)),
        };
        if let Err(error) = &written {
            self.unsynced.waiting.append(&mut group);
            return self.answer_waiting(Some(error));
        }
        match self.options.acknowledge {
            Acknowledge::Synced => self.unsynced.waiting.append(&mut group),
            _ => group.into_iter().for_each(Append::answer_placed),
        }
        self.unsynced.messages += messages;
        self.unsynced.since.get_or_insert_with(Instant::now);
        if self.is_flush_due() {
            self.flush();
        }
    }

    fn is_flush_due(&self) -> bool {
        let waited = self.unsynced.since.map_or(Duration::ZERO, |since| since.elapsed());
        match self.options.flush {
            Flush::EveryBatch => true,
            Flush::EveryMessages(count) if self.unsynced.messages >= u64::from(count) => true,
            Flush::EveryMessages(_) | Flush::Every(_) => waited >= self.options.flush.patience(),
        }
    }

    /// Syncs what was written, and answers whoever waits for it.
    fn flush(&mut self) {
        if self.unsynced.since.take().is_none() || self.failure.get().is_some() {
            return;
        }
        self.unsynced.messages = 0;
        let synced = self.store.sync().inspect_err(|error| self.stop(error));
        self.answer_waiting(synced.as_ref().err());
    }

    fn answer_waiting(&mut self, error: Option<&Error>) {
        for append in self.unsynced.waiting.drain(..) {
            match error {
                None => append.answer_placed(),
                Some(error) => drop(append.reply.send(unknown(error))),
            }
        }
    }
}

/// What comes within a short time.
fn linger(commands: &mut mpsc::Receiver<Command>) -> Option<Command> {
    let began = std::time::Instant::now();
    loop {
        match commands.try_recv() {
            Ok(command) => return Some(command),
            // Others may have the core meanwhile.
            Err(mpsc::error::TryRecvError::Empty) if began.elapsed() < LINGER => std::thread::yield_now(),
            Err(_) => return None,
        }
    }
}

enum Next {
    Commands(Command),
    /// Something that was put off is due.
    Time,
    End,
}

fn unknown(error: &Error) -> Answer {
    Answer::Unknown(format!("the log could not finish the write: {error}"))
}
