//! What the one thread that writes does: it takes what has queued up, writes it, syncs once, and answers everybody.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use landfall_core::{Error, ErrorKind, Result, TopicName};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::error;

use crate::durable::is_full;
use crate::lock::FolderLock;
use crate::options::{Acknowledge, Flush, Gaps, Options};
use crate::topic::admin;
use crate::topic::open::{Topic, Topics};
use crate::write::awake::Idle;
use crate::write::producers::{Held, Limits, Ticket};
use crate::write::store::Store;
use crate::write::writer::{Answer, Append, CLOSED, Command};

/// A group is not filled beyond this: its publishers wait for all of it.
const GROUP_BYTES: usize = 8 * 1024 * 1024;

pub(crate) struct Work {
    /// What waits for messages of the same producer, by the partition's id.
    held: HashMap<u64, Held<Append>>,
    /// When what is held is given up, in order.
    patience: VecDeque<(Instant, u64, Ticket)>,
    topics: Arc<Topics>,
    options: Options,
    store: Store,
    unsynced: Unsynced,
    idle: Idle,
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
    /// `clock` is a runtime that knows the time. `lock` is held until the thread has ended.
    pub(crate) fn new(
        topics: Arc<Topics>,
        options: Options,
        store: Store,
        failure: Arc<OnceLock<String>>,
        clock: Runtime,
        lock: Arc<Option<FolderLock>>,
    ) -> Self {
        let (held, patience) = (HashMap::new(), VecDeque::new());
        let (unsynced, idle) = (Unsynced::default(), Idle::default());
        Self { held, patience, topics, options, store, unsynced, idle, failure, clock, _lock: lock }
    }

    /// Works until it is told to end, or nobody is left to tell it.
    pub(crate) fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        loop {
            match self.next(&mut commands) {
                Next::Commands(first) => {
                    if !self.work_on(first, &mut commands) {
                        break;
                    }
                    self.work_ahead();
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
    fn next(&mut self, commands: &mut mpsc::Receiver<Command>) -> Next {
        let flush = self.unsynced.since.map(|since| since + self.options.flush.patience());
        let patience = self.patience.front().map(|(deadline, ..)| *deadline);
        let received = match flush.into_iter().chain(patience).min() {
            None => Ok(self.idle.wait(commands)),
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
    pub(crate) fn change<T>(&mut self, change: impl FnOnce(&mut Store) -> Result<T>) -> Result<T> {
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

    /// Uses the time until the next messages come.
    fn work_ahead(&mut self) {
        if self.unsynced.since.is_none()
            && self.failure.get().is_none()
            && let Err(error) = self.store.work_ahead()
        {
            self.stop(&error);
        }
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

enum Next {
    Commands(Command),
    /// Something that was put off is due.
    Time,
    End,
}

fn unknown(error: &Error) -> Answer {
    Answer::Unknown(format!("the log could not finish the write: {error}"))
}
