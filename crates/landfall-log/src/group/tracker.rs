//! Keeps account of what a subscriber was given and has not finished.
//!
//! A message is in flight from its delivery until it is acknowledged, also while it waits to be delivered again.
//! The group counts what is in flight as unfinished and everything else that was delivered as finished: no list of
//! finished messages is needed, and memory is bounded by the number in flight.
//!
//! All of it holds for one generation of a partition ([`crate::group::progress`]). When the partition moves or is sought, what was
//! in flight is forgotten, and the deliveries that stand for it settle nothing.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use landfall_core::{Acknowledge, Error, ErrorKind, Position, Result};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::group::flusher::Flusher;
use crate::group::place::Turn;
use crate::group::progress::{Assigned, Finish, Group};
use crate::storage::record::Record;

/// What any clock can still count.
const LONGEST_DELAY: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// Shared by a subscriber and the deliveries it gave out.
#[derive(Debug)]
pub(crate) struct Tracker {
    group: Arc<Group>,
    member: u64,
    /// Weak, so that a delivery which somebody forgot about does not keep the log open.
    flusher: Weak<Flusher>,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Nothing counts any more: the subscriber has left, or the log was closed.
    has_ended: bool,
    partitions: BTreeMap<u32, InFlight>,
    count: usize,
    /// Given back and due.
    ready: BTreeSet<Position>,
    /// Given back and not due yet.
    delayed: BinaryHeap<Reverse<(Instant, Position)>>,
}

#[derive(Debug)]
struct InFlight {
    generation: u64,
    records: BTreeMap<u64, Record>,
    /// The offset after the last one that was delivered.
    delivered: u64,
}

impl InFlight {
    fn new(assigned: &Assigned) -> Self {
        Self { generation: assigned.generation, records: BTreeMap::new(), delivered: assigned.finished }
    }
}

impl Tracker {
    pub(crate) fn new(group: Arc<Group>, member: u64, flusher: Weak<Flusher>) -> Self {
        Self { group, member, flusher, state: Mutex::default(), changed: Notify::new() }
    }

    /// From now on the subscriber has the partitions of `assigned` and no others; answers with the offset from which
    /// on each is to be delivered. Of those that it had before, or had in another generation, nothing is in flight any
    /// more: whoever has them now is given it again.
    pub(crate) fn assign(&self, assigned: &[Assigned]) -> Vec<u64> {
        let mut state = self.state();
        let mut before = std::mem::take(&mut state.partitions);
        for assigned in assigned {
            let kept = before.remove(&assigned.partition).filter(|kept| kept.generation == assigned.generation);
            state.partitions.insert(assigned.partition, kept.unwrap_or_else(|| InFlight::new(assigned)));
        }
        let State { partitions, ready, delayed, count, .. } = &mut *state;
        let is_in_flight = |position: &Position| {
            let in_flight = partitions.get(&position.partition);
            in_flight.is_some_and(|in_flight| in_flight.records.contains_key(&position.offset))
        };
        ready.retain(is_in_flight);
        delayed.retain(|Reverse((_, position))| is_in_flight(position));
        *count = partitions.values().map(|in_flight| in_flight.records.len()).sum();
        assigned.iter().map(|assigned| partitions[&assigned.partition].delivered).collect()
    }

    /// Whether the topic was deleted, so that nothing more comes of it.
    pub(crate) fn is_discarded(&self) -> bool {
        self.group.is_discarded()
    }

    /// Messages in flight.
    pub(crate) fn count(&self) -> usize {
        self.state().count
    }

    /// `record` was read and is to be delivered for the first time. Per partition this happens in the order of the
    /// offsets. `None` if it must not be: a member that had the partition before has finished it, or the partition is
    /// no longer in the same hands.
    pub(crate) fn deliver(self: &Arc<Self>, partition: u32, record: &Record) -> Option<Receipt> {
        let mut state = self.state();
        let in_flight = state.partitions.get_mut(&partition)?;
        let (generation, offset) = (in_flight.generation, record.offset);
        let turn = self.group.deliver(partition, generation, offset);
        if turn == Turn::Fenced {
            return None;
        }
        in_flight.delivered = offset + 1;
        if turn == Turn::Finished {
            return None;
        }
        in_flight.records.insert(offset, record.clone());
        state.count += 1;
        Some(self.receipt(Position { partition, offset }, generation))
    }

    /// The record at `offset` of `partition`, the next in order, is there for nobody: it counts as delivered and
    /// finished.
    pub(crate) fn pass_over(&self, partition: u32, offset: u64) -> Result<()> {
        let mut state = self.state();
        let Some(in_flight) = state.partitions.get_mut(&partition) else { return Ok(()) };
        in_flight.delivered = offset + 1;
        let generation = in_flight.generation;
        self.tell_group(&mut state, Position { partition, offset }, generation).map(drop)
    }

    /// The next message that was given back and is due; of one partition the oldest first.
    pub(crate) fn redeliver(self: &Arc<Self>) -> Option<(Record, Receipt)> {
        let mut state = self.state();
        let now = Instant::now();
        while let Some(Reverse((due, position))) = state.delayed.peek().copied()
            && due <= now
        {
            state.delayed.pop();
            state.ready.insert(position);
        }
        while let Some(position) = state.ready.pop_first() {
            if let Some(in_flight) = state.partitions.get(&position.partition)
                && let Some(record) = in_flight.records.get(&position.offset)
            {
                return Some((record.clone(), self.receipt(position, in_flight.generation)));
            }
        }
        None
    }

    /// Waits until something was finished or given back, or the next delay is over.
    pub(crate) async fn changed(&self) {
        let due = self.state().delayed.peek().map(|Reverse((due, _))| *due);
        match due {
            None => self.changed.notified().await,
            Some(due) => tokio::select! {
                () = self.changed.notified() => {}
                () = tokio::time::sleep_until(due) => {}
            },
        }
    }

    /// What is acknowledged from now on does not count: it is delivered again to the next member.
    pub(crate) fn end(&self) {
        let mut state = self.state();
        state.has_ended = true;
        state.partitions.clear();
    }

    fn finish(&self, position: Position, generation: u64) -> Result<()> {
        let mut state = self.state();
        if state.has_ended {
            return Err(ended());
        }
        let in_flight = state.partitions.get_mut(&position.partition);
        let Some(in_flight) = in_flight.filter(|in_flight| in_flight.generation == generation) else {
            drop(state);
            self.group.seen(self.member);
            return Err(moved());
        };
        // A copy that was acknowledged before: there is nothing left to do.
        if in_flight.records.remove(&position.offset).is_none() {
            return Ok(());
        }
        state.count -= 1;
        let counts = self.tell_group(&mut state, position, generation)?;
        drop(state);
        self.changed.notify_one();
        if counts { Ok(()) } else { Err(moved()) }
    }

    /// Tells the group that what stands at `position` is finished; `false` if that counts nothing any more.
    fn tell_group(&self, state: &mut State, position: Position, generation: u64) -> Result<bool> {
        match self.group.finish(self.member, position.partition, generation, position.offset) {
            Finish::Fenced => Ok(false),
            Finish::Noted => Ok(true),
            Finish::Unsaved => {
                let flusher = self.flusher.upgrade().ok_or_else(ended);
                let saved = flusher.and_then(|flusher| flusher.save(Arc::clone(&self.group)));
                state.has_ended |= saved.is_err();
                saved.map(|()| true)
            }
        }
    }

    fn give_back(&self, position: Position, generation: u64, delay: Duration) {
        self.group.seen(self.member);
        let mut state = self.state();
        let in_flight = state.partitions.get(&position.partition);
        if in_flight.is_none_or(|in_flight| in_flight.generation != generation) {
            return;
        }
        if delay.is_zero() {
            state.ready.insert(position);
        } else {
            state.delayed.push(Reverse((Instant::now() + delay.min(LONGEST_DELAY), position)));
        }
        drop(state);
        self.changed.notify_one();
    }

    fn receipt(self: &Arc<Self>, position: Position, generation: u64) -> Receipt {
        Receipt { tracker: Arc::clone(self), position, generation, is_open: true }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ended() -> Error {
    let sentence = "the subscriber has left its group; the message is delivered again to the next member";
    Error::new(ErrorKind::Conflict, sentence)
}

fn moved() -> Error {
    let sentence = "the partition was given to another member, or its group was sent elsewhere, since the message was \
                    delivered; the acknowledgement counts nothing";
    Error::new(ErrorKind::Conflict, sentence)
}

/// What stands behind a delivery.
#[derive(Debug)]
pub(crate) struct Receipt {
    tracker: Arc<Tracker>,
    position: Position,
    /// Of the partition, when it was delivered.
    generation: u64,
    /// Neither acknowledged nor given back.
    is_open: bool,
}

impl Receipt {
    pub(crate) fn position(&self) -> Position {
        self.position
    }
}

#[async_trait]
impl Acknowledge for Receipt {
    async fn ack(mut self: Box<Self>) -> Result<()> {
        self.is_open = false;
        self.tracker.finish(self.position, self.generation)
    }

    async fn nack(mut self: Box<Self>, delay: Duration) -> Result<()> {
        self.is_open = false;
        self.tracker.give_back(self.position, self.generation, delay);
        Ok(())
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if self.is_open {
            self.tracker.give_back(self.position, self.generation, Duration::ZERO);
        }
    }
}
