//! One shard while a member owns it: what was received, and how far it is finished without a gap.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_nats::Subject;
use bytes::Bytes;
use landfall_broker_toolkit::InFlight;
use landfall_core::{Error, ErrorKind, Result, Timestamp};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// The messages in flight of one member, by shard and stream sequence.
pub(crate) type Deliveries = InFlight<u64, Stored>;

pub(crate) type InFlightMessage = landfall_broker_toolkit::InFlightMessage<u64, Stored>;

/// A message as it was received.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) shard: Arc<Shard>,
    pub(crate) content: Content,
    pub(crate) time: Timestamp,
}

#[derive(Debug)]
pub(crate) enum Content {
    Message(async_nats::Message),
    /// The client cannot read its headers.
    Unreadable {
        why: String,
        payload: Bytes,
    },
}

#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) number: u32,
    pub(crate) epoch: u64,
    deliveries: Arc<Deliveries>,
    /// One permit for each message that may be in flight, over all shards of the member.
    room: Arc<Semaphore>,
    /// Locked before `deliveries`, never while those are locked.
    state: Mutex<State>,
    /// Everything up to a new sequence is finished, which is to be acknowledged to the server.
    pub(crate) finished: Notify,
}

#[derive(Debug)]
struct State {
    /// Whether the member still owns the shard.
    is_owned: bool,
    /// Everything up to this sequence is finished.
    floor: u64,
    /// How many messages the consumer has sent, by its own count.
    received: u64,
    /// Whether the reader waits for the server and holds no message.
    is_waiting: bool,
    /// Where to acknowledge each message received behind the floor, finished or not.
    replies: BTreeMap<u64, Option<Subject>>,
    /// Where to send the newest acknowledgement that was not sent yet.
    to_acknowledge: Option<Subject>,
}

/// A message from the server, with where to acknowledge it.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) sequence: u64,
    /// The consumer's count of its messages.
    pub(crate) number: u64,
    pub(crate) stored: Timestamp,
    /// `None` if the consumer did not send it itself.
    pub(crate) reply: Option<Subject>,
    pub(crate) content: Content,
}

impl State {
    /// Moves the floor up to the first unfinished sequence, exclusively; to everything received if there is none.
    fn advance(&mut self, first_unfinished: Option<u64>) -> bool {
        let before = self.floor;
        while let Some(first) = self.replies.first_entry()
            && first_unfinished.is_none_or(|unfinished| *first.key() < unfinished)
        {
            let (sequence, reply) = first.remove_entry();
            self.floor = sequence;
            self.to_acknowledge = reply.or(self.to_acknowledge.take());
        }
        self.floor != before
    }
}

impl Shard {
    pub(crate) fn new(
        number: u32,
        epoch: u64,
        floor: u64,
        deliveries: Arc<Deliveries>,
        room: Arc<Semaphore>,
    ) -> Arc<Self> {
        deliveries.assign(number);
        let state = State {
            is_owned: true,
            floor,
            received: 0,
            is_waiting: false,
            replies: BTreeMap::new(),
            to_acknowledge: None,
        };
        Arc::new(Self { number, epoch, deliveries, room, state: Mutex::new(state), finished: Notify::new() })
    }

    /// No caller panics while it holds the lock, so the state is consistent even if the mutex is poisoned.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a message from the server; `false` if one before it is missing. Ignores messages that are known already.
    pub(crate) fn receive(self: &Arc<Self>, received: Received, permit: OwnedSemaphorePermit) -> bool {
        let Received { sequence, number, stored, reply, content } = received;
        let mut state = self.state();
        if number != state.received + 1 {
            return false;
        }
        state.received = number;
        if !state.is_owned || sequence <= state.floor || state.replies.contains_key(&sequence) {
            return true;
        }
        state.replies.insert(sequence, reply);
        let stored = Stored { shard: self.clone(), content, time: stored };
        if self.deliveries.arrive([(self.number, sequence, stored)]) == 1 {
            // Returned to the semaphore when the message is finished.
            permit.forget();
        }
        true
    }

    /// Marks a message as finished. `Conflict` if another member owns the shard by now, which may deliver it as well.
    pub(crate) fn finish(&self, message: &InFlightMessage) -> Result<()> {
        if self.deliveries.finish(message).is_none() {
            let reason = format!("another member owns shard {} now and delivers this again", self.number);
            return Err(Error::new(ErrorKind::Conflict, reason));
        }
        self.room.add_permits(1);
        let mut state = self.state();
        // The deliveries may belong to the next owner of the same shard in this process.
        if state.is_owned && state.advance(self.deliveries.first_unfinished(self.number)) {
            drop(state);
            self.finished.notify_one();
        }
        Ok(())
    }

    /// Where to acknowledge everything that is finished, if that was not sent yet.
    pub(crate) fn take_acknowledgement(&self) -> Option<Subject> {
        self.state().to_acknowledge.take()
    }

    /// Sends an acknowledgement again that the server did not confirm, unless there is a newer one.
    pub(crate) fn acknowledge_again(&self, reply: Subject) {
        self.state().to_acknowledge.get_or_insert(reply);
        self.finished.notify_one();
    }

    /// Where to extend the acknowledgement deadline of each unfinished message.
    pub(crate) fn unfinished(&self) -> Vec<Subject> {
        let state = self.state();
        let unfinished = if state.is_owned { self.deliveries.unfinished(self.number) } else { Vec::new() };
        unfinished.iter().filter_map(|sequence| state.replies.get(sequence).cloned().flatten()).collect()
    }

    pub(crate) fn is_owned(&self) -> bool {
        self.state().is_owned
    }

    /// Everything up to this sequence is finished.
    pub(crate) fn floor(&self) -> u64 {
        self.state().floor
    }

    pub(crate) fn set_waiting(&self, is_waiting: bool) {
        self.state().is_waiting = is_waiting;
    }

    /// How many messages were received, if the reader waits for more.
    pub(crate) fn received_and_waiting(&self) -> Option<u64> {
        let state = self.state();
        state.is_waiting.then_some(state.received)
    }

    /// Ends the ownership, and returns how far the shard is finished. Its messages in flight settle nothing any more.
    pub(crate) fn close(&self) -> u64 {
        let mut state = self.state();
        if state.is_owned {
            let revoked = self.deliveries.revoke(self.number);
            self.room.add_permits(revoked.in_flight);
            state.advance(revoked.first_unfinished);
            state.is_owned = false;
            state.replies.clear();
        }
        state.floor
    }
}
