//! The deliveries of a subscriber that are in flight.
//!
//! A message is in flight from its delivery until it is acknowledged, including while it waits for redelivery. The
//! group counts messages in flight as unfinished and everything else that was delivered as finished. So it needs no
//! list of finished messages, and memory is bounded by the number in flight.
//!
//! All of it is valid for one generation of a partition ([`crate::group::progress`]). When the partition moves or is
//! sought, its messages in flight are dropped, and their deliveries can no longer be acknowledged.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use landfall_core::{Acknowledge, Error, ErrorKind, Position, Result};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::group::flusher::Flusher;
use crate::group::partition_progress::DeliveryDecision;
use crate::group::progress::{Assigned, FinishResult, Group};
use crate::storage::record::Record;

/// Within the range of every clock.
const LONGEST_DELAY: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// Shared by a subscriber and its deliveries.
#[derive(Debug)]
pub(crate) struct InFlight {
    group: Arc<Group>,
    member: u64,
    /// Weak, so that a leaked delivery does not keep the log open.
    flusher: Weak<Flusher>,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The subscriber has left, or the log was closed: acknowledgements are refused.
    is_closed: bool,
    partitions: BTreeMap<u32, PartitionInFlight>,
    count: usize,
    /// Returned for redelivery, and due.
    ready: BTreeSet<Position>,
    /// Returned for redelivery, and not due yet.
    delayed: BinaryHeap<Reverse<(Instant, Position)>>,
}

#[derive(Debug)]
struct PartitionInFlight {
    generation: u64,
    records: BTreeMap<u64, Record>,
    /// The offset after the last one that was delivered.
    delivered: u64,
}

impl PartitionInFlight {
    fn new(assigned: &Assigned) -> Self {
        Self { generation: assigned.generation, records: BTreeMap::new(), delivered: assigned.finished }
    }
}

impl InFlight {
    pub(crate) fn new(group: Arc<Group>, member: u64, flusher: Weak<Flusher>) -> Self {
        Self { group, member, flusher, state: Mutex::default(), changed: Notify::new() }
    }

    /// Replaces the subscriber's partitions by `assigned`, and returns the offset from which each is delivered. Drops
    /// what is in flight in partitions that were lost or are in another generation: their new owner gets it.
    pub(crate) fn assign(&self, assigned: &[Assigned]) -> Vec<u64> {
        let mut state = self.state();
        let mut before = std::mem::take(&mut state.partitions);
        for assigned in assigned {
            let kept = before.remove(&assigned.partition).filter(|kept| kept.generation == assigned.generation);
            state.partitions.insert(assigned.partition, kept.unwrap_or_else(|| PartitionInFlight::new(assigned)));
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

    /// Whether the topic was deleted.
    pub(crate) fn is_discarded(&self) -> bool {
        self.group.is_discarded()
    }

    /// The number of messages in flight.
    pub(crate) fn count(&self) -> usize {
        self.state().count
    }

    /// Records the first delivery of `record`; offsets come in order per partition. `None` if it must be skipped: a
    /// previous owner finished it, or the partition has moved.
    pub(crate) fn deliver(self: &Arc<Self>, partition: u32, record: &Record) -> Option<Receipt> {
        let mut state = self.state();
        let in_flight = state.partitions.get_mut(&partition)?;
        let (generation, offset) = (in_flight.generation, record.offset);
        let decision = self.group.deliver(partition, generation, offset);
        if decision == DeliveryDecision::Fenced {
            return None;
        }
        in_flight.delivered = offset + 1;
        if decision == DeliveryDecision::Finished {
            return None;
        }
        in_flight.records.insert(offset, record.clone());
        state.count += 1;
        Some(self.receipt(Position { partition, offset }, generation))
    }

    /// Skips the removed record at `offset` of `partition`, the next in order: it counts as delivered and finished.
    pub(crate) fn skip_removed(&self, partition: u32, offset: u64) -> Result<()> {
        let mut state = self.state();
        let Some(in_flight) = state.partitions.get_mut(&partition) else { return Ok(()) };
        in_flight.delivered = offset + 1;
        let generation = in_flight.generation;
        self.finish_in_group(&mut state, Position { partition, offset }, generation).map(drop)
    }

    /// Returns the next message that is due for redelivery; the oldest first within a partition.
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

    /// Waits until a message was finished or returned, or the next delay is over.
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

    /// Refuses later acknowledgements: their messages are redelivered to the next member.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.partitions.clear();
    }

    fn finish(&self, position: Position, generation: u64) -> Result<()> {
        let mut state = self.state();
        if state.is_closed {
            return Err(left_group());
        }
        let in_flight = state.partitions.get_mut(&position.partition);
        let Some(in_flight) = in_flight.filter(|in_flight| in_flight.generation == generation) else {
            drop(state);
            self.group.record_activity(self.member);
            return Err(stale_generation());
        };
        // A duplicate delivery that was already acknowledged.
        if in_flight.records.remove(&position.offset).is_none() {
            return Ok(());
        }
        state.count -= 1;
        let counts = self.finish_in_group(&mut state, position, generation)?;
        drop(state);
        self.changed.notify_one();
        if counts { Ok(()) } else { Err(stale_generation()) }
    }

    /// Records in the group that the message at `position` is finished; `false` if the generation is outdated.
    fn finish_in_group(&self, state: &mut State, position: Position, generation: u64) -> Result<bool> {
        match self.group.finish(self.member, position.partition, generation, position.offset) {
            FinishResult::Fenced => Ok(false),
            FinishResult::Recorded => Ok(true),
            FinishResult::NeedsSave => {
                let flusher = self.flusher.upgrade().ok_or_else(left_group);
                let saved = flusher.and_then(|flusher| flusher.save(Arc::clone(&self.group)));
                state.is_closed |= saved.is_err();
                saved.map(|()| true)
            }
        }
    }

    fn schedule_redelivery(&self, position: Position, generation: u64, delay: Duration) {
        self.group.record_activity(self.member);
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
        Receipt { in_flight: Arc::clone(self), position, generation, is_open: true }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn left_group() -> Error {
    let sentence = "the subscriber has left its group; the message is redelivered to another member";
    Error::new(ErrorKind::Conflict, sentence)
}

fn stale_generation() -> Error {
    let sentence = "the partition has moved to another member, or its group was sought, since the message was \
                    delivered; the acknowledgement is ignored";
    Error::new(ErrorKind::Conflict, sentence)
}

/// The acknowledgement handle of a delivery.
#[derive(Debug)]
pub(crate) struct Receipt {
    in_flight: Arc<InFlight>,
    position: Position,
    /// Of the partition, at the time of delivery.
    generation: u64,
    /// Neither acknowledged nor returned.
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
        self.in_flight.finish(self.position, self.generation)
    }

    async fn nack(mut self: Box<Self>, delay: Duration) -> Result<()> {
        self.is_open = false;
        self.in_flight.schedule_redelivery(self.position, self.generation, delay);
        Ok(())
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if self.is_open {
            self.in_flight.schedule_redelivery(self.position, self.generation, Duration::ZERO);
        }
    }
}
