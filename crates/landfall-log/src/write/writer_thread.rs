//! The writer thread: takes everything that has queued up, writes it, syncs once, and replies to all publishers.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use landfall_core::{Error, ErrorKind, Result, TopicName};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::error;

use crate::durable::is_passing;
use crate::lock::FolderLock;
use crate::options::{Acknowledge, Flush, Gaps, Options};
use crate::topic::admin;
use crate::topic::open::{Topic, Topics};
use crate::write::producers::{Limits, ReorderBuffer, Ticket};
use crate::write::spin_wait::CommandWaiter;
use crate::write::store::{PartResult, Store};
use crate::write::writer::{Append, AppendReply, CLOSED, Command};

/// Maximum size of a group, because its publishers wait for all of it.
const GROUP_BYTES: usize = 8 * 1024 * 1024;

pub(crate) struct WriterThread {
    /// Batches that arrived before their predecessors, by partition id.
    held: HashMap<u64, ReorderBuffer<Append>>,
    /// When held batches are refused, in order.
    deadlines: VecDeque<(Instant, u64, Ticket)>,
    topics: Arc<Topics>,
    options: Options,
    store: Store,
    unsynced: Unsynced,
    waiter: CommandWaiter,
    failure: Arc<OnceLock<String>>,
    /// The reason, while the last message was refused for a reason that passes.
    refusal: Arc<Mutex<Option<String>>>,
    is_refusing: bool,
    /// A timer for waits with a deadline.
    timer: Runtime,
    _lock: Arc<Option<FolderLock>>,
}

/// Writes that are not synced yet.
#[derive(Default)]
struct Unsynced {
    messages: u64,
    /// Time of the first write.
    since: Option<Instant>,
    /// Requests that are acknowledged after the sync.
    waiting: Vec<Append>,
}

impl WriterThread {
    /// `timer` is a runtime with a timer. The thread holds `lock` until it ends.
    pub(crate) fn new(
        topics: Arc<Topics>,
        options: Options,
        store: Store,
        (failure, refusal): (Arc<OnceLock<String>>, Arc<Mutex<Option<String>>>),
        timer: Runtime,
        lock: Arc<Option<FolderLock>>,
    ) -> Self {
        let (held, deadlines) = (HashMap::new(), VecDeque::new());
        let (unsynced, waiter) = (Unsynced::default(), CommandWaiter::default());
        Self {
            held,
            deadlines,
            topics,
            options,
            store,
            unsynced,
            waiter,
            failure,
            refusal,
            is_refusing: false,
            timer,
            _lock: lock,
        }
    }

    /// Runs until it receives `Close` or all senders are dropped.
    pub(crate) fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        loop {
            match self.next_event(&mut commands) {
                Event::Command(first) => {
                    if !self.process(first, &mut commands) {
                        break;
                    }
                    self.preallocate();
                }
                Event::Deadline => {
                    self.expire_held(Instant::now());
                    if self.is_flush_due() {
                        self.flush();
                    }
                }
                Event::Closed => break,
            }
        }
        self.flush();
        for append in self.held.values_mut().flat_map(ReorderBuffer::drain) {
            append.complete();
        }
        if self.failure.get().is_none()
            && let Err(error) = self.store.close()
        {
            error!(%error, "cannot truncate the log's segments on close; the next open does it");
        }
        // Requests that arrived during the close were not written.
        commands.close();
        while let Some(command) = commands.blocking_recv() {
            if let Command::Append(append) = command {
                let _ = append.reply.send(AppendReply::Refused(CLOSED.into()));
            }
        }
    }

    /// Waits for the next command or deadline.
    fn next_event(&mut self, commands: &mut mpsc::Receiver<Command>) -> Event {
        let flush = self.unsynced.since.map(|since| since + self.options.flush.max_delay());
        let expiry = self.deadlines.front().map(|(deadline, ..)| *deadline);
        let received = match flush.into_iter().chain(expiry).min() {
            None => Ok(self.waiter.wait(commands)),
            Some(deadline) => self.timer.block_on(async { tokio::time::timeout_at(deadline, commands.recv()).await }),
        };
        match received {
            Ok(Some(command)) => Event::Command(command),
            Ok(None) => Event::Closed,
            Err(_) => Event::Deadline,
        }
    }

    /// Processes `first` and the commands queued behind it as one group. Returns `false` on `Close`.
    fn process(&mut self, first: Command, commands: &mut mpsc::Receiver<Command>) -> bool {
        let (mut group, mut bytes, mut next) = (Vec::new(), 0, Some(first));
        let mut keep_running = true;
        while let Some(command) = next {
            match command {
                Command::Append(append) => {
                    bytes += append.parts.iter().map(|part| part.records().len()).sum::<usize>();
                    self.admit(append, &mut group);
                }
                Command::Create(name, reply) => drop(reply.send(self.create(&name))),
                Command::Change(change) => {
                    self.commit(std::mem::take(&mut group));
                    self.flush();
                    change(self);
                }
                Command::Close => {
                    keep_running = false;
                    break;
                }
            }
            next = if bytes < GROUP_BYTES { commands.try_recv().ok() } else { None };
        }
        self.commit(group);
        keep_running
    }

    fn create(&mut self, name: &TopicName) -> Result<Arc<Topic>> {
        if let Some(failure) = self.failure.get() {
            return Err(Error::new(ErrorKind::Unavailable, failure.clone()));
        }
        let created = admin::create(&self.topics, name, self.options.partitions, self.options.topic);
        created.inspect_err(|error| {
            self.stop_unless_passing(error);
            self.record_refusal(Some(error));
        })
    }

    /// Runs `change` after everything appended before it is synced.
    pub(crate) fn change<T>(&mut self, change: impl FnOnce(&mut Store) -> Result<T>) -> Result<T> {
        if let Some(failure) = self.failure.get() {
            return Err(Error::new(ErrorKind::Unavailable, failure.clone()));
        }
        let changed = change(&mut self.store);
        if let Err(error) = &changed
            && !matches!(error.kind(), ErrorKind::Invalid | ErrorKind::NotFound | ErrorKind::Conflict)
        {
            self.stop_unless_passing(error);
        }
        changed
    }

    /// Records why the last message was refused, or that it was not.
    fn record_refusal(&mut self, reason: Option<impl ToString>) {
        // Accepted messages are frequent, and only the first one after a refusal is news.
        if std::mem::replace(&mut self.is_refusing, reason.is_some()) || self.is_refusing {
            *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = reason.map(|reason| reason.to_string());
        }
    }

    /// Stops the log, unless the change can be retried once there is space or a file descriptor.
    fn stop_unless_passing(&self, error: &Error) {
        if !is_passing(error) {
            self.stop(error);
        }
    }

    /// Refuses messages from now on, because of `error`.
    fn stop(&self, error: &Error) {
        error!(%error, "log stopped: it refuses messages until it is reopened");
        // Set once: the first failure is the one to report.
        let _ = self.failure.set(format!("the log refuses messages until it is reopened, after a failure: {error}"));
    }

    /// Assigns offsets to the records of `append`, then to held batches whose gap it closes. Requests that wait for a
    /// write or sync go to `group`.
    fn admit(&mut self, append: Append, group: &mut Vec<Append>) {
        let mut next = Some(append);
        while let Some(mut append) = next.take() {
            if let Some(failure) = self.failure.get() {
                let _ = append.reply.send(AppendReply::Refused(failure.clone()));
                return;
            }
            if append.parts.iter().any(|part| part.partition.is_deleted()) {
                let _ = append.reply.send(AppendReply::Refused("a topic of the batch was just deleted".into()));
                return;
            }
            match self.append_parts(&mut append) {
                Ok(()) if append.has_gap() => self.hold(append),
                Ok(()) => {
                    next = self.next_in_sequence(&append);
                    group.push(append);
                }
                Err(error) => {
                    self.stop(&error);
                    let _ = append.reply.send(unknown(&error));
                }
            }
        }
    }

    fn append_parts(&mut self, append: &mut Append) -> Result<()> {
        // A held request is appended a second time.
        append.results.clear();
        append.messages = 0;
        for part in &mut append.parts {
            append.messages += u64::from(part.count());
            let result = self.store.append(part)?;
            match &result {
                PartResult::Refused(refusal) if refusal.retriable => self.record_refusal(Some(&refusal.reason)),
                PartResult::Appended(_) => self.record_refusal(None::<&str>),
                _ => {}
            }
            append.results.push(result);
        }
        Ok(())
    }

    /// Holds `append` until its predecessors arrive, or replies if it may not wait.
    fn hold(&mut self, append: Append) {
        let Gaps::Hold { batches, bytes, time } = self.options.gaps else { return append.complete() };
        let Some((part, sequenced)) = append.parts.first().and_then(|part| Some((part, part.sequenced?))) else {
            return append.complete();
        };
        let (id, size) = (part.partition.id(), part.records().len());
        let held = self.held.entry(id).or_insert_with(|| ReorderBuffer::new(Limits { batches, bytes }));
        match held.hold(sequenced.producer, sequenced.first, size, append) {
            Ok(ticket) => self.deadlines.push_back((Instant::now() + time, id, ticket)),
            Err(append) => append.complete(),
        }
    }

    /// Takes a held request whose predecessors have all arrived with `append`.
    fn next_in_sequence(&mut self, append: &Append) -> Option<Append> {
        let part = append.parts.first()?;
        let sequenced = part.sequenced?;
        let held = self.held.get_mut(&part.partition.id())?;
        let next_sequence = self.store.next_sequence(&part.partition, sequenced.producer).ok()?;
        held.take_next(sequenced.producer, next_sequence)
    }

    /// Replies to held requests whose deadline has passed.
    fn expire_held(&mut self, now: Instant) {
        while let Some((_, id, ticket)) = self.deadlines.pop_front_if(|(deadline, ..)| *deadline <= now) {
            if let Some(append) = self.held.get_mut(&id).and_then(|held| held.remove(ticket)) {
                append.complete();
            }
        }
    }

    /// Writes `group`, acknowledges the requests that need no sync, and syncs if due.
    fn commit(&mut self, mut group: Vec<Append>) {
        if group.is_empty() {
            return;
        }
        let messages: u64 = group.iter().map(|append| append.messages).sum();
        if self.options.acknowledge == Acknowledge::None {
            group.drain(..).for_each(Append::complete);
        }
        let written = match self.failure.get() {
            Some(failure) => Err(Error::new(ErrorKind::Unavailable, failure.clone())),
            None => self.store.write().inspect_err(|error| self.stop(error)),
        };
        if let Err(error) = &written {
            self.unsynced.waiting.append(&mut group);
            return self.reply_to_waiting(Some(error));
        }
        match self.options.acknowledge {
            Acknowledge::Synced => self.unsynced.waiting.append(&mut group),
            _ => group.into_iter().for_each(Append::complete),
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
            Flush::EveryMessages(_) | Flush::Every(_) => waited >= self.options.flush.max_delay(),
        }
    }

    /// Syncs everything that was written and replies to the waiting requests.
    fn flush(&mut self) {
        if self.unsynced.since.take().is_none() || self.failure.get().is_some() {
            return;
        }
        self.unsynced.messages = 0;
        let synced = self.store.sync().inspect_err(|error| self.stop(error));
        self.reply_to_waiting(synced.as_ref().err());
    }

    /// Uses the idle time until the next command.
    fn preallocate(&mut self) {
        if self.unsynced.since.is_none()
            && self.failure.get().is_none()
            && let Err(error) = self.store.preallocate()
        {
            self.stop(&error);
        }
    }

    fn reply_to_waiting(&mut self, error: Option<&Error>) {
        for append in self.unsynced.waiting.drain(..) {
            match error {
                None => append.complete(),
                Some(error) => drop(append.reply.send(unknown(error))),
            }
        }
    }
}

enum Event {
    Command(Command),
    /// A flush or a held request is due.
    Deadline,
    Closed,
}

fn unknown(error: &Error) -> AppendReply {
    AppendReply::Unknown(format!("the log could not complete the write: {error}"))
}
