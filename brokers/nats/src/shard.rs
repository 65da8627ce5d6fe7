//! One shard in the hands of one member: what was received, what is finished, and how far that goes without a gap.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_nats::Subject;
use landfall_core::{Error, ErrorKind, Position, Result, Timestamp};
use tokio::sync::{Notify, OwnedSemaphorePermit, mpsc};

/// What is ready for the subscriber: a shard, and the sequence of a message in it.
pub(crate) type Queue = mpsc::UnboundedSender<(Arc<Shard>, u64)>;

#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) number: u32,
    pub(crate) epoch: u64,
    queue: Queue,
    state: Mutex<State>,
    /// Something may be acknowledged to the server.
    pub(crate) finished: Notify,
}

#[derive(Debug)]
struct State {
    /// Whether the shard is still this member's.
    is_ours: bool,
    /// Everything up to here is finished.
    floor: u64,
    /// What the consumer has sent, counted by itself.
    received: u64,
    /// Whether the reader waits for the server, and holds nothing itself.
    is_waiting: bool,
    entries: BTreeMap<u64, Entry>,
    /// Where the newest acknowledgement goes that was not sent yet.
    to_acknowledge: Option<Subject>,
}

#[derive(Debug)]
struct Entry {
    reply: Option<Subject>,
    /// `None` when it is finished.
    unfinished: Option<Unfinished>,
}

#[derive(Debug)]
struct Unfinished {
    content: Arc<Content>,
    stored: Timestamp,
    /// Whether somebody has it in hand.
    is_out: bool,
    _permit: OwnedSemaphorePermit,
}

/// What there is of a message.
#[derive(Debug)]
pub(crate) enum Content {
    Message(async_nats::Message),
    /// It cannot be read, and this is why.
    Unreadable(String),
}

/// A message as it came, with where its acknowledgement goes.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) sequence: u64,
    /// Counted by the consumer.
    pub(crate) number: u64,
    pub(crate) stored: Timestamp,
    /// `None` if the consumer did not send it itself.
    pub(crate) reply: Option<Subject>,
    pub(crate) content: Content,
}

impl Shard {
    pub(crate) fn new(number: u32, epoch: u64, floor: u64, queue: Queue) -> Arc<Self> {
        let state = State {
            is_ours: true,
            floor,
            received: 0,
            is_waiting: false,
            entries: BTreeMap::new(),
            to_acknowledge: None,
        };
        Arc::new(Self { number, epoch, queue, state: Mutex::new(state), finished: Notify::new() })
    }

    /// Nothing is done under the lock that could leave it half changed.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what the server sent; `false` if something before it is missing. What is known already is passed over.
    pub(crate) fn receive(self: &Arc<Self>, received: Received, permit: OwnedSemaphorePermit) -> bool {
        let Received { sequence, number, stored, reply, content } = received;
        let mut state = self.state();
        if number != state.received + 1 {
            return false;
        }
        state.received = number;
        if !state.is_ours || sequence <= state.floor || state.entries.contains_key(&sequence) {
            return true;
        }
        let unfinished = Unfinished { content: Arc::new(content), stored, is_out: false, _permit: permit };
        state.entries.insert(sequence, Entry { reply, unfinished: Some(unfinished) });
        drop(state);
        self.offer(sequence);
        true
    }

    /// To the subscriber, if it is still there.
    fn offer(self: &Arc<Self>, sequence: u64) {
        let _ = self.queue.send((self.clone(), sequence));
    }

    /// The message for a delivery; `None` if it is no longer to be delivered here.
    pub(crate) fn take_out(&self, sequence: u64) -> Option<(Arc<Content>, Timestamp, Position)> {
        let mut state = self.state();
        if !state.is_ours {
            return None;
        }
        let unfinished = state.entries.get_mut(&sequence)?.unfinished.as_mut().filter(|one| !one.is_out)?;
        unfinished.is_out = true;
        Some((unfinished.content.clone(), unfinished.stored, Position { partition: self.number, offset: sequence }))
    }

    /// Finished. `Conflict` if the shard is somebody else's by now: it may be delivered there as well.
    pub(crate) fn finish(&self, sequence: u64) -> Result<()> {
        let mut state = self.state();
        if !state.is_ours {
            let sentence = format!("shard {} was given to another member, which delivers this again", self.number);
            return Err(Error::new(ErrorKind::Conflict, sentence));
        }
        if let Some(entry) = state.entries.get_mut(&sequence) {
            entry.unfinished = None;
        }
        let mut is_further = false;
        while let Some(first) = state.entries.first_entry().filter(|first| first.get().unfinished.is_none()) {
            let (sequence, entry) = first.remove_entry();
            state.floor = sequence;
            state.to_acknowledge = entry.reply.or(state.to_acknowledge.take());
            is_further = true;
        }
        drop(state);
        if is_further {
            self.finished.notify_one();
        }
        Ok(())
    }

    /// Not finished: it is delivered again here.
    pub(crate) fn give_back(self: &Arc<Self>, sequence: u64) {
        let mut state = self.state();
        let entry = state.entries.get_mut(&sequence).and_then(|entry| entry.unfinished.as_mut());
        let Some(unfinished) = entry.filter(|one| one.is_out) else { return };
        unfinished.is_out = false;
        drop(state);
        self.offer(sequence);
    }

    /// Where the server waits for the acknowledgement of everything that is finished, if it does.
    pub(crate) fn take_acknowledgement(&self) -> Option<Subject> {
        self.state().to_acknowledge.take()
    }

    /// It was not heard; unless there is a newer one it is sent again.
    pub(crate) fn acknowledge_again(&self, reply: Subject) {
        self.state().to_acknowledge.get_or_insert(reply);
        self.finished.notify_one();
    }

    /// Where to ask for more time for each message that is not finished.
    pub(crate) fn unfinished(&self) -> Vec<Subject> {
        let state = self.state();
        let unfinished = state.entries.values().filter(|entry| entry.unfinished.is_some());
        unfinished.filter_map(|entry| entry.reply.clone()).collect()
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.state().is_ours
    }

    /// Everything up to here is finished.
    pub(crate) fn floor(&self) -> u64 {
        self.state().floor
    }

    pub(crate) fn set_waiting(&self, is_waiting: bool) {
        self.state().is_waiting = is_waiting;
    }

    /// How much came, if the reader is waiting for more.
    pub(crate) fn received_and_waiting(&self) -> Option<u64> {
        let state = self.state();
        state.is_waiting.then_some(state.received)
    }

    /// Not ours any more, or not to be worked on any more: how far it is finished.
    pub(crate) fn close(&self) -> u64 {
        let mut state = self.state();
        state.is_ours = false;
        state.entries.clear();
        state.floor
    }
}
