//! Keeps account of what a subscriber was given and has not finished.
//!
//! A message is in flight from its delivery until it is acknowledged, also while it waits to be delivered again.
//! Everything below the oldest in flight of a partition is finished, which is all that a group's offset can say: no
//! list of finished messages is needed, and memory is bounded by the number in flight.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use landfall_core::{Acknowledge, Error, ErrorKind, Position, Result};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::flusher::Flusher;
use crate::group::Offsets;
use crate::record::Record;

/// What any clock can still count.
const LONGEST_DELAY: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// Shared by a subscriber and the deliveries it gave out.
#[derive(Debug)]
pub(crate) struct Tracker {
    offsets: Arc<Offsets>,
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

#[derive(Debug, Default)]
struct InFlight {
    records: BTreeMap<u64, Record>,
    /// The offset after the last one that was delivered.
    delivered: u64,
}

impl Tracker {
    pub(crate) fn new(offsets: Arc<Offsets>, flusher: Weak<Flusher>) -> Self {
        Self { offsets, flusher, state: Mutex::default(), changed: Notify::new() }
    }

    /// From now on the subscriber has `partitions` and no others; answers with the offset from which on each is to
    /// be delivered. Of those it had before nothing is in flight any more: their new owner is given it again.
    pub(crate) fn assign(&self, partitions: &[u32]) -> Vec<u64> {
        let mut state = self.state();
        state.partitions.retain(|partition, _| partitions.contains(partition));
        state.ready.retain(|position| partitions.contains(&position.partition));
        state.delayed.retain(|Reverse((_, position))| partitions.contains(&position.partition));
        state.count = state.partitions.values().map(|in_flight| in_flight.records.len()).sum();
        let from = |partition: &u32| match state.partitions.get(partition) {
            Some(in_flight) => in_flight.delivered,
            None => self.offsets.finished(*partition),
        };
        partitions.iter().map(from).collect()
    }

    /// Whether the topic was deleted, so that nothing more comes of it.
    pub(crate) fn is_discarded(&self) -> bool {
        self.offsets.is_discarded()
    }

    /// Messages in flight.
    pub(crate) fn count(&self) -> usize {
        self.state().count
    }

    /// `record` is being delivered for the first time. Per partition this happens in the order of the offsets.
    pub(crate) fn deliver(self: &Arc<Self>, partition: u32, record: &Record) -> Receipt {
        let mut state = self.state();
        let in_flight = state.partitions.entry(partition).or_default();
        in_flight.delivered = record.offset + 1;
        in_flight.records.insert(record.offset, record.clone());
        state.count += 1;
        self.receipt(Position { partition, offset: record.offset })
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
            let in_flight = state.partitions.get(&position.partition);
            if let Some(record) = in_flight.and_then(|in_flight| in_flight.records.get(&position.offset)) {
                return Some((record.clone(), self.receipt(position)));
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

    fn finish(self: &Arc<Self>, position: Position) -> Result<()> {
        let mut state = self.state();
        if state.has_ended {
            return Err(ended());
        }
        // A partition that has moved away, or a copy that was acknowledged before: there is nothing left to do.
        let Some(in_flight) = state.partitions.get_mut(&position.partition) else { return Ok(()) };
        if in_flight.records.remove(&position.offset).is_none() {
            return Ok(());
        }
        let finished = in_flight.records.first_key_value().map_or(in_flight.delivered, |(oldest, _)| *oldest);
        state.count -= 1;
        if self.offsets.advance(position.partition, finished) {
            let flusher = self.flusher.upgrade().ok_or_else(ended);
            if let Err(error) = flusher.and_then(|flusher| flusher.save(Arc::clone(&self.offsets))) {
                state.has_ended = true;
                return Err(error);
            }
        }
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    fn give_back(&self, position: Position, delay: Duration) {
        let mut state = self.state();
        if delay.is_zero() {
            state.ready.insert(position);
        } else {
            state.delayed.push(Reverse((Instant::now() + delay.min(LONGEST_DELAY), position)));
        }
        drop(state);
        self.changed.notify_one();
    }

    fn receipt(self: &Arc<Self>, position: Position) -> Receipt {
        Receipt { tracker: Arc::clone(self), position, is_open: true }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ended() -> Error {
    let sentence = "the subscriber has left its group; the message is delivered again to the next member";
    Error::new(ErrorKind::Conflict, sentence)
}

/// What stands behind a delivery.
#[derive(Debug)]
pub(crate) struct Receipt {
    tracker: Arc<Tracker>,
    position: Position,
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
        self.tracker.finish(self.position)
    }

    async fn nack(mut self: Box<Self>, delay: Duration) -> Result<()> {
        self.is_open = false;
        self.tracker.give_back(self.position, delay);
        Ok(())
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if self.is_open {
            self.tracker.give_back(self.position, Duration::ZERO);
        }
    }
}
