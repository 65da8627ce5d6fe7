//! The deliveries of a subscriber that are in flight.
//!
//! A message is in flight from its delivery until it is acknowledged, including while it waits for redelivery. The
//! group counts messages in flight as unfinished and everything else that was delivered as finished. So it needs no
//! list of finished messages, and memory is bounded by the number in flight.
//!
//! All of it is valid for one generation of a partition ([`crate::group::progress`]). When the partition moves or is
//! sought, its messages in flight are dropped, and their deliveries can no longer be acknowledged.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use landfall_broker_toolkit::{InFlight, InFlightMessage, Settle};
use landfall_core::{Error, ErrorKind, Position, Result};
use tokio::time::{Instant, sleep_until};

use crate::group::flusher::Flusher;
use crate::group::partition_progress::DeliveryDecision;
use crate::group::progress::{Assigned, FinishResult, Group};
use crate::storage::record::Record;

/// A record and the generation of its partition when it was delivered.
#[derive(Debug)]
pub(crate) struct Delivered {
    pub(crate) record: Record,
    generation: u64,
}

/// Shared by a subscriber and its deliveries.
#[derive(Debug)]
pub(crate) struct MemberDeliveries {
    group: Arc<Group>,
    member: u64,
    /// Weak, so that a leaked delivery does not keep the log open.
    flusher: Weak<Flusher>,
    in_flight: InFlight<u64, Delivered>,
    /// Locked before `in_flight`.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The subscriber has left, or the log was closed: acknowledgements are refused.
    is_closed: bool,
    partitions: BTreeMap<u32, Partition>,
}

#[derive(Debug)]
struct Partition {
    generation: u64,
    /// The offset after the last one that was delivered.
    delivered: u64,
}

impl MemberDeliveries {
    pub(crate) fn new(group: Arc<Group>, member: u64, flusher: Weak<Flusher>) -> Self {
        Self { group, member, flusher, in_flight: InFlight::default(), state: Mutex::default() }
    }

    /// Replaces the subscriber's partitions by `assigned`, and returns the offset from which each is delivered. Drops
    /// what is in flight in partitions that were lost or are in another generation: their new owner gets it.
    pub(crate) fn assign(&self, assigned: &[Assigned]) -> Vec<u64> {
        let mut state = self.state();
        let mut before = std::mem::take(&mut state.partitions);
        for Assigned { partition, generation, finished } in assigned {
            let kept = before.remove(partition).filter(|kept| kept.generation == *generation);
            let current = kept.unwrap_or_else(|| {
                self.in_flight.assign(*partition);
                Partition { generation: *generation, delivered: *finished }
            });
            state.partitions.insert(*partition, current);
        }
        for partition in before.into_keys() {
            self.in_flight.revoke(partition);
        }
        assigned.iter().map(|assigned| state.partitions[&assigned.partition].delivered).collect()
    }

    /// Whether the topic was deleted.
    pub(crate) fn is_discarded(&self) -> bool {
        self.group.is_discarded()
    }

    /// The number of messages in flight.
    pub(crate) fn count(&self) -> usize {
        self.in_flight.len()
    }

    /// Adds a record that was read, to be delivered by [`MemberDeliveries::next`]. Per partition this happens in the
    /// order of the offsets. Ignores a record that an earlier owner of the partition has finished, or whose partition
    /// has moved.
    pub(crate) fn deliver(&self, partition: u32, record: Record) {
        let mut state = self.state();
        let Some(current) = state.partitions.get_mut(&partition) else { return };
        let (generation, offset) = (current.generation, record.offset);
        let decision = self.group.deliver(partition, generation, offset);
        if decision == DeliveryDecision::Fenced {
            return;
        }
        current.delivered = offset + 1;
        if decision != DeliveryDecision::Finished {
            self.in_flight.arrive([(partition, offset, Delivered { record, generation })]);
        }
    }

    /// Skips the removed record at `offset` of `partition`, the next in order: it counts as delivered and finished.
    pub(crate) fn skip_removed(&self, partition: u32, offset: u64) -> Result<()> {
        let mut state = self.state();
        let Some(current) = state.partitions.get_mut(&partition) else { return Ok(()) };
        current.delivered = offset + 1;
        let generation = current.generation;
        self.finish_in_group(&mut state, Position { partition, offset }, generation).map(drop)
    }

    /// Returns the next message to deliver: given-back ones that are due first, the oldest first within a partition.
    pub(crate) fn next(&self) -> Option<InFlightMessage<u64, Delivered>> {
        self.in_flight.try_next()
    }

    /// Waits until a message was finished or given back, or the next delay is over.
    pub(crate) async fn changed(&self) {
        let due = self.in_flight.next_due();
        tokio::select! {
            () = self.in_flight.room_changed() => {}
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
        }
    }

    /// Refuses every later acknowledgement: the next member delivers these messages again.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.partitions.clear();
        drop(self.in_flight.close());
    }

    /// Informs the group that the message at `position` is finished; `false` if its generation is over.
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

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Settle for MemberDeliveries {
    type Message = InFlightMessage<u64, Delivered>;

    fn ack(&self, message: Self::Message) -> Result<()> {
        let mut state = self.state();
        if state.is_closed {
            return Err(left_group());
        }
        if self.in_flight.finish(&message).is_none() {
            drop(state);
            self.group.record_activity(self.member);
            return Err(stale_generation());
        }
        let position = Position { partition: message.partition, offset: message.offset };
        match self.finish_in_group(&mut state, position, message.content.generation)? {
            true => Ok(()),
            false => Err(stale_generation()),
        }
    }

    fn nack(&self, message: Self::Message, delay: Duration) -> Result<()> {
        self.group.record_activity(self.member);
        self.in_flight.give_back(message, delay);
        Ok(())
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
