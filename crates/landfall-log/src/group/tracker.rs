//! The messages in flight of one subscriber.
//!
//! A message is in flight from its delivery until it is acknowledged, also while it waits to be delivered again.
//! The group counts what is in flight as unfinished and everything else that was delivered as finished: no list of
//! finished messages is needed, and memory is bounded by the number in flight.
//!
//! All of it holds for one generation of a partition ([`crate::group::progress`]). When the partition moves or is
//! sought, its messages in flight are forgotten, and their acknowledgements settle nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use landfall_broker_toolkit::{InFlight, InFlightMessage, Settle};
use landfall_core::{Error, ErrorKind, Position, Result};
use tokio::time::{Instant, sleep_until};

use crate::group::flusher::Flusher;
use crate::group::place::Turn;
use crate::group::progress::{Assigned, Finish, Group};
use crate::storage::record::Record;

/// A record and the generation of its partition when it was delivered.
#[derive(Debug)]
pub(crate) struct Delivered {
    pub(crate) record: Record,
    generation: u64,
}

/// Shared by a subscriber and its deliveries.
#[derive(Debug)]
pub(crate) struct Tracker {
    group: Arc<Group>,
    member: u64,
    /// Weak, so that a delivery which is never settled does not keep the log open.
    flusher: Weak<Flusher>,
    in_flight: InFlight<u64, Delivered>,
    /// Locked before `in_flight`.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Nothing counts any more: the subscriber has left, or the log was closed.
    has_ended: bool,
    partitions: BTreeMap<u32, Partition>,
}

#[derive(Debug)]
struct Partition {
    generation: u64,
    /// The offset after the last one that was delivered.
    delivered: u64,
}

impl Tracker {
    pub(crate) fn new(group: Arc<Group>, member: u64, flusher: Weak<Flusher>) -> Self {
        Self { group, member, flusher, in_flight: InFlight::default(), state: Mutex::default() }
    }

    /// Makes the partitions of `assigned` those of the subscriber, and returns the offset from which each is to be
    /// delivered. Forgets the messages in flight of any other partition or generation: the present owner delivers them
    /// again.
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

    /// Whether the topic was deleted, so that nothing more is delivered.
    pub(crate) fn is_discarded(&self) -> bool {
        self.group.is_discarded()
    }

    /// Messages in flight.
    pub(crate) fn count(&self) -> usize {
        self.in_flight.len()
    }

    /// Adds a record that was read, to be delivered by [`Tracker::next`]. Per partition this happens in the order of
    /// the offsets. Ignores a record that an earlier owner of the partition has finished, or whose partition has moved.
    pub(crate) fn deliver(&self, partition: u32, record: Record) {
        let mut state = self.state();
        let Some(current) = state.partitions.get_mut(&partition) else { return };
        let (generation, offset) = (current.generation, record.offset);
        let turn = self.group.deliver(partition, generation, offset);
        if turn == Turn::Fenced {
            return;
        }
        current.delivered = offset + 1;
        if turn != Turn::Finished {
            self.in_flight.arrive([(partition, offset, Delivered { record, generation })]);
        }
    }

    /// Counts the record at `offset` of `partition`, the next in order, as delivered and finished: it is not to be
    /// delivered.
    pub(crate) fn pass_over(&self, partition: u32, offset: u64) -> Result<()> {
        let mut state = self.state();
        let Some(current) = state.partitions.get_mut(&partition) else { return Ok(()) };
        current.delivered = offset + 1;
        let generation = current.generation;
        self.finish_in_group(&mut state, Position { partition, offset }, generation).map(drop)
    }

    /// The next message to deliver: first those given back and due, of one partition the oldest first.
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
    pub(crate) fn end(&self) {
        let mut state = self.state();
        state.has_ended = true;
        state.partitions.clear();
        drop(self.in_flight.close());
    }

    /// Informs the group that the message at `position` is finished; `false` if its generation is over.
    fn finish_in_group(&self, state: &mut State, position: Position, generation: u64) -> Result<bool> {
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

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Settle for Tracker {
    type Message = InFlightMessage<u64, Delivered>;

    fn ack(&self, message: Self::Message) -> Result<()> {
        let mut state = self.state();
        if state.has_ended {
            return Err(ended());
        }
        if self.in_flight.finish(&message).is_none() {
            drop(state);
            self.group.seen(self.member);
            return Err(moved());
        }
        let position = Position { partition: message.partition, offset: message.offset };
        match self.finish_in_group(&mut state, position, message.content.generation)? {
            true => Ok(()),
            false => Err(moved()),
        }
    }

    fn nack(&self, message: Self::Message, delay: Duration) -> Result<()> {
        self.group.seen(self.member);
        self.in_flight.give_back(message, delay);
        Ok(())
    }
}

fn ended() -> Error {
    let reason = "the subscriber has left its group; the message is delivered again to the next member";
    Error::new(ErrorKind::Conflict, reason)
}

fn moved() -> Error {
    let reason = "the partition was given to another member, or its group was sent elsewhere, since the message was \
                  delivered; the acknowledgement counts nothing";
    Error::new(ErrorKind::Conflict, reason)
}
