//! What a subscriber has fetched and not finished.
//!
//! An entry is on the shelf from the moment it was fetched until it is acknowledged, also while it is with the consumer
//! and while it waits to be delivered again. When a stream goes to another member, everything of it leaves the shelf, and
//! the deliveries that stand for it give nothing back.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque, btree_map};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use landfall_core::{Error, Result};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::entry::{Entry, EntryId};
use crate::subscriber::left;

/// What any clock can still count.
const LONGEST_DELAY: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// An entry of a stream while that is this member's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) shard: u32,
    pub(crate) id: EntryId,
    /// Grows each time a stream comes to this member.
    generation: u64,
}

/// Finished entries on their way to Redis.
pub(crate) type Finished = mpsc::UnboundedReceiver<(u32, EntryId)>;

#[derive(Debug)]
pub(crate) struct Shelf {
    state: Mutex<State>,
    finished: mpsc::UnboundedSender<(u32, EntryId)>,
    /// There may be something to deliver.
    arrived: Notify,
    /// There may be room.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    has_ended: bool,
    error: Option<Error>,
    shards: BTreeMap<u32, Shard>,
    generations: u64,
    /// Never delivered yet, in the order fetched.
    fresh: VecDeque<Place>,
    /// Given back and due.
    due: BTreeSet<(u32, EntryId)>,
    /// Given back and not due yet.
    delayed: BinaryHeap<Reverse<(Instant, u32, EntryId)>>,
}

#[derive(Debug)]
struct Shard {
    generation: u64,
    entries: BTreeMap<EntryId, Kept>,
    /// Goes to another member as soon as the consumer is done with what it has of it.
    is_leaving: bool,
}

#[derive(Debug)]
struct Kept {
    entry: Arc<Entry>,
    is_delivered: bool,
}

impl Shelf {
    pub(crate) fn new() -> (Self, Finished) {
        let (finished, told) = mpsc::unbounded_channel();
        let (arrived, changed) = (Notify::new(), Notify::new());
        (Self { state: Mutex::default(), finished, arrived, changed }, told)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `shard` is this member's from now on; nothing is known of it. Answers with a number that grows each time.
    pub(crate) fn open(&self, shard: u32) -> u64 {
        let mut state = self.state();
        state.generations += 1;
        let generation = state.generations;
        state.shards.insert(shard, Shard { generation, entries: BTreeMap::new(), is_leaving: false });
        state.forget_the_lost();
        generation
    }

    /// `shard` is somebody else's.
    pub(crate) fn lose(&self, shard: u32) {
        let mut state = self.state();
        state.shards.remove(&shard);
        state.forget_the_lost();
        self.changed.notify_one();
    }

    /// Nothing more of `shard` is delivered; what the consumer has, it may finish.
    pub(crate) fn leave(&self, shard: u32) {
        let mut state = self.state();
        if let Some(shard) = state.shards.get_mut(&shard) {
            shard.is_leaving = true;
            shard.entries.retain(|_, kept| kept.is_delivered);
        }
        state.forget_the_lost();
    }

    /// Whether the consumer has nothing of `shard` any more.
    pub(crate) fn is_empty(&self, shard: u32) -> bool {
        self.state().shards.get(&shard).is_none_or(|shard| shard.entries.is_empty())
    }

    /// Puts down what was fetched from `shard`, in order; what is here already stays as it is.
    pub(crate) fn put(&self, shard: u32, entries: Vec<Entry>) {
        let mut guard = self.state();
        let state = &mut *guard;
        let Some(open) = state.shards.get_mut(&shard) else { return };
        for entry in entries {
            let id = entry.id;
            // What is claimed again may be here already, with the consumer or waiting.
            if let btree_map::Entry::Vacant(vacant) = open.entries.entry(id) {
                vacant.insert(Kept { entry: Arc::new(entry), is_delivered: false });
                state.fresh.push_back(Place { shard, id, generation: open.generation });
            }
        }
        self.arrived.notify_one();
    }

    /// The next to deliver: what was given back and is due comes first.
    pub(crate) fn take(&self, now: Instant) -> Option<(Place, Arc<Entry>)> {
        let mut guard = self.state();
        let state = &mut *guard;
        if state.has_ended {
            return None;
        }
        while let Some(Reverse((due, shard, id))) = state.delayed.peek().copied()
            && due <= now
        {
            state.delayed.pop();
            state.due.insert((shard, id));
        }
        while let Some((shard, id)) = state.due.pop_first() {
            if let Some(taken) = state.deliver(shard, id) {
                return Some(taken);
            }
        }
        while let Some(place) = state.fresh.pop_front() {
            if state.fresh.len().is_multiple_of(64) {
                // Fetching goes on while the rest is delivered.
                self.changed.notify_one();
            }
            if let Some(taken) = state.deliver(place.shard, place.id) {
                return Some(taken);
            }
        }
        None
    }

    /// When the next one that was given back is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.state().delayed.peek().map(|Reverse((due, ..))| *due)
    }

    /// How many are on the shelf, and how many of these nobody has taken yet.
    pub(crate) fn count(&self) -> (usize, usize) {
        let state = self.state();
        (state.shards.values().map(|shard| shard.entries.len()).sum(), state.fresh.len())
    }

    pub(crate) fn finish(&self, place: Place) -> Result<()> {
        let mut state = self.state();
        if let Some(shard) = state.current(place) {
            shard.entries.remove(&place.id);
        }
        self.changed.notify_one();
        self.finished.send((place.shard, place.id)).map_err(|_| left(place.shard, place.id))
    }

    /// It is delivered again after `delay`, unless its stream has gone to another member: that one delivers it.
    pub(crate) fn give_back(&self, place: Place, delay: Duration) {
        let mut guard = self.state();
        let state = &mut *guard;
        let Some(shard) = state.current(place) else { return };
        if shard.is_leaving {
            shard.entries.remove(&place.id);
            self.changed.notify_one();
            return;
        }
        let Some(kept) = shard.entries.get_mut(&place.id) else { return };
        kept.is_delivered = false;
        if delay.is_zero() {
            state.due.insert((place.shard, place.id));
        } else {
            state.delayed.push(Reverse((Instant::now() + delay.min(LONGEST_DELAY), place.shard, place.id)));
        }
        self.arrived.notify_one();
    }

    /// Nothing is delivered any more.
    pub(crate) fn end(&self) {
        let mut state = self.state();
        state.has_ended = true;
        state.shards.clear();
        state.forget_the_lost();
    }

    /// Something will not heal by itself; the subscriber is told.
    pub(crate) fn fail(&self, error: Error) {
        self.state().error = Some(error);
        self.arrived.notify_one();
    }

    pub(crate) fn take_error(&self) -> Option<Error> {
        self.state().error.take()
    }

    pub(crate) async fn arrived(&self) {
        self.arrived.notified().await;
    }

    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}

impl State {
    /// The stream of `place`, if it is still this member's and was all the time.
    fn current(&mut self, place: Place) -> Option<&mut Shard> {
        self.shards.get_mut(&place.shard).filter(|shard| shard.generation == place.generation)
    }

    fn deliver(&mut self, shard: u32, id: EntryId) -> Option<(Place, Arc<Entry>)> {
        let open = self.shards.get_mut(&shard)?;
        let kept = open.entries.get_mut(&id)?;
        kept.is_delivered = true;
        Some((Place { shard, id, generation: open.generation }, Arc::clone(&kept.entry)))
    }

    fn forget_the_lost(&mut self) {
        let Self { shards, fresh, due, delayed, .. } = self;
        let is_kept = |shard: u32, id: &EntryId| shards.get(&shard).is_some_and(|open| open.entries.contains_key(id));
        fresh.retain(|place| is_kept(place.shard, &place.id));
        due.retain(|(shard, id)| is_kept(*shard, id));
        delayed.retain(|Reverse((_, shard, id))| is_kept(*shard, id));
    }
}
