//! What one member has in hand: deliveries that wait for `next`, that were given out, and that wait to come again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use landfall_core::Error;
use tokio::sync::Notify;

use crate::offsets::Offsets;
use crate::record::Record;

/// How long more room is waited for where there is some.
const MUCH_ROOM: Duration = Duration::from_millis(1);

/// How many times what may be unfinished may be delivered of one partition behind a message that is not finished.
const BEHIND_ONE: usize = 10;

/// One record, as it is delivered and may be delivered again.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) record: Record,
    /// Which assignment of its partition it belongs to. After that has ended it is somebody else's.
    assignment: u64,
}

/// Shared by the subscriber, its deliveries and the thread that polls.
#[derive(Debug)]
pub(crate) struct InHand {
    state: Mutex<State>,
    /// For `next`.
    pub(crate) arrived: Notify,
    /// For the thread that polls.
    room: Condvar,
    limit: usize,
}

#[derive(Debug, Default)]
struct State {
    partitions: BTreeMap<i32, Offsets>,
    assignments: u64,
    ready: VecDeque<Item>,
    later: BTreeMap<(Instant, u64), Item>,
    given_back: u64,
    unfinished: usize,
    is_closing: bool,
    has_left: bool,
    failure: Option<Error>,
}

/// What `next` finds.
pub(crate) enum Next {
    Item(Item),
    /// Nothing now; the first that was given back is due then.
    Nothing(Option<Instant>),
    Failed(Error),
    Closed,
}

impl InHand {
    pub(crate) fn new(limit: usize) -> Self {
        Self { state: Mutex::default(), arrived: Notify::new(), room: Condvar::new(), limit }
    }

    /// Partitions that are ours from now on.
    pub(crate) fn assign(&self, partitions: impl Iterator<Item = i32>) {
        let mut state = self.state();
        for partition in partitions {
            state.begin(partition);
        }
    }

    /// Partitions that are somebody else's from now on. What is out of them is harmless: nobody counts it any more.
    pub(crate) fn revoke(&self, partitions: impl Iterator<Item = i32>) {
        let mut state = self.state();
        for partition in partitions {
            state.end(partition);
        }
        drop(state);
        self.room.notify_one();
    }

    /// The partitions of ours from which nothing came yet.
    pub(crate) fn untouched(&self) -> Vec<i32> {
        let state = self.state();
        state.partitions.iter().filter(|(_, offsets)| offsets.is_untouched()).map(|(partition, _)| *partition).collect()
    }

    /// All of them.
    pub(crate) fn revoke_all(&self) {
        let ours: Vec<i32> = self.state().partitions.keys().copied().collect();
        self.revoke(ours.into_iter());
    }

    /// The next records, in order. Those of partitions that went away meanwhile are left to whoever has them now.
    pub(crate) fn arrive(&self, records: Vec<Record>) {
        let mut state = self.state();
        for record in records {
            let Record { partition, offset, .. } = record;
            if state.partitions.get(&partition).is_some_and(|offsets| !offsets.follows(offset)) {
                state.begin(partition);
            }
            let Some(offsets) = state.partitions.get_mut(&partition) else { continue };
            offsets.deliver(offset);
            let assignment = offsets.assignment;
            state.ready.push_back(Item { record, assignment });
            state.unfinished += 1;
        }
        drop(state);
        self.arrived.notify_one();
    }

    /// The partitions that are to be paused from now on, and those that are to go on. One whose prefix waits for a
    /// message that is not finished gets no further than `BEHIND_ONE` allows: what was finished behind it has to be
    /// remembered, and comes again if this member dies.
    pub(crate) fn hold_back(&self) -> (Vec<i32>, Vec<i32>) {
        let (mut pause, mut resume) = (Vec::new(), Vec::new());
        let most = self.limit.saturating_mul(BEHIND_ONE);
        for (partition, offsets) in &mut self.state().partitions {
            let changed = match offsets.is_held {
                false if offsets.length() >= most => &mut pause,
                true if offsets.length() <= most / 2 => &mut resume,
                _ => continue,
            };
            changed.push(*partition);
            offsets.is_held = !offsets.is_held;
        }
        (pause, resume)
    }

    /// Whether `partition` is ours and not held back.
    pub(crate) fn goes_on(&self, partition: i32) -> bool {
        self.state().partitions.get(&partition).is_some_and(|offsets| !offsets.is_held)
    }

    pub(crate) fn next(&self) -> Next {
        let mut state = self.state();
        if let Some(error) = state.failure.take() {
            return Next::Failed(error);
        }
        // Nearly always nothing was given back, and nobody has to look at the clock.
        while let Some(entry) = state.later.first_entry().filter(|entry| entry.key().0 <= Instant::now()) {
            let item = entry.remove();
            if state.is_ours(&item) {
                return Next::Item(item);
            }
        }
        while let Some(item) = state.ready.pop_front() {
            if state.is_ours(&item) {
                return Next::Item(item);
            }
        }
        match state.has_left {
            true => Next::Closed,
            false => Next::Nothing(state.later.first_key_value().map(|((due, _), _)| *due)),
        }
    }

    pub(crate) fn finish(&self, item: &Item) {
        let mut state = self.state();
        let Record { partition, offset, .. } = item.record;
        let ours = state.partitions.get_mut(&partition).filter(|offsets| offsets.assignment == item.assignment);
        if ours.is_some_and(|offsets| offsets.finish(offset)) {
            state.unfinished -= 1;
            // Whoever waits for room is woken twice, and not for each: when there is some, and when there is much.
            let is_worth_it = state.unfinished + 1 == self.limit || state.unfinished == self.limit / 2;
            drop(state);
            if is_worth_it {
                self.room.notify_one();
            }
        } else {
            tracing::debug!(partition, offset, "acknowledged after it went to another member");
        }
    }

    pub(crate) fn give_back(&self, item: Item, delay: Duration) {
        let mut state = self.state();
        if !state.is_ours(&item) {
            return;
        }
        state.given_back += 1;
        // A time that no clock counts to is as good as a year.
        let now = Instant::now();
        let due = now.checked_add(delay).unwrap_or(now + Duration::from_secs(365 * 24 * 3600));
        let number = state.given_back;
        state.later.insert((due, number), item);
        drop(state);
        self.arrived.notify_one();
    }

    /// For each partition whose finished prefix has grown, where the next member would go on.
    pub(crate) fn progress(&self) -> Vec<(i32, i64)> {
        let mut state = self.state();
        let grown =
            state.partitions.iter_mut().filter_map(|(partition, offsets)| Some((*partition, offsets.progress()?)));
        grown.collect()
    }

    /// How many more may arrive.
    pub(crate) fn room(&self) -> usize {
        self.limit.saturating_sub(self.state().unfinished)
    }

    pub(crate) fn has_too_many(&self) -> bool {
        self.state().unfinished > self.limit
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.state().is_closing
    }

    /// Waits until there is room or nobody wants any; `false` if that took longer than `patience`. Where a handler
    /// makes room quickly it waits a moment longer for much of it: a thread that is woken for each message is slow.
    pub(crate) fn wait_for_room(&self, patience: Duration) -> bool {
        let is_full = |state: &mut State| state.unfinished >= self.limit && !state.is_closing;
        let waited = self.room.wait_timeout_while(self.state(), patience, is_full);
        let (state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        let is_half_full = |state: &mut State| state.unfinished > self.limit / 2 && !state.is_closing;
        if !waited.timed_out() {
            drop(self.room.wait_timeout_while(state, MUCH_ROOM, is_half_full));
        }
        !waited.timed_out()
    }

    pub(crate) fn close(&self) {
        self.state().is_closing = true;
        self.room.notify_one();
    }

    /// The thread that polls has ended, for good or with an error that will not heal.
    pub(crate) fn left(&self, failure: Option<Error>) {
        let mut state = self.state();
        state.has_left = true;
        state.failure = failure;
        drop(state);
        self.arrived.notify_one();
    }

    /// Nothing is done under the lock that could leave it half changed.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn begin(&mut self, partition: i32) {
        self.end(partition);
        self.assignments += 1;
        self.partitions.insert(partition, Offsets::new(self.assignments));
    }

    fn end(&mut self, partition: i32) {
        if let Some(offsets) = self.partitions.remove(&partition) {
            self.unfinished -= offsets.unfinished();
        }
    }

    fn is_ours(&self, item: &Item) -> bool {
        self.partitions.get(&item.record.partition).is_some_and(|offsets| offsets.assignment == item.assignment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(in_hand: &InHand) -> Item {
        let Next::Item(item) = in_hand.next() else { panic!("there is something") };
        item
    }

    fn bad(partition: i32, offset: i64) -> Record {
        Record::empty(partition, offset)
    }

    #[test]
    fn what_was_revoked_is_neither_delivered_nor_counted() {
        let in_hand = InHand::new(2);
        in_hand.assign([0, 1].into_iter());
        // The third is nobody's any more.
        in_hand.arrive(vec![bad(0, 5), bad(1, 8), bad(2, 1)]);
        let given_out = take(&in_hand);
        assert!(in_hand.room() == 0 && !in_hand.wait_for_room(Duration::ZERO));
        in_hand.revoke([0].into_iter());
        assert_eq!(in_hand.room(), 1, "what somebody else has takes no room here");
        in_hand.assign([0].into_iter());
        in_hand.finish(&given_out);
        assert_eq!(in_hand.progress(), [(1, 8)], "a late acknowledgement moves nothing");
        in_hand.give_back(given_out, Duration::ZERO);
        assert_eq!(take(&in_hand).record.partition, 1);
        assert!(matches!(in_hand.next(), Next::Nothing(None)));
    }

    #[test]
    fn what_was_given_back_comes_again_and_holds_back_the_progress() {
        let in_hand = InHand::new(10);
        in_hand.assign([0].into_iter());
        in_hand.arrive(vec![bad(0, 0), bad(0, 1)]);
        in_hand.give_back(take(&in_hand), Duration::from_secs(3600));
        in_hand.finish(&take(&in_hand));
        assert!(matches!(in_hand.next(), Next::Nothing(Some(_))));
        assert_eq!(in_hand.progress(), [(0, 0)]);
    }

    #[test]
    fn behind_what_was_given_back_a_partition_is_held_until_it_is_finished_and_others_are_not() {
        let in_hand = InHand::new(2);
        in_hand.assign([0, 1].into_iter());
        in_hand.arrive(vec![bad(0, 0), bad(1, 0)]);
        in_hand.give_back(take(&in_hand), Duration::ZERO);
        for offset in 1..20 {
            assert!(in_hand.hold_back().0.is_empty() && in_hand.goes_on(0), "{offset}");
            in_hand.arrive(vec![bad(0, offset), bad(1, offset)]);
        }
        assert_eq!(in_hand.hold_back(), (vec![0, 1], vec![]));
        assert_eq!(in_hand.hold_back(), (vec![], vec![]), "it is said once");
        let mut head = None;
        while let Next::Item(item) = in_hand.next() {
            match (item.record.partition, item.record.offset) {
                (0, 0) => head = Some(item),
                _ => in_hand.finish(&item),
            }
        }
        assert_eq!(in_hand.hold_back(), (vec![], vec![1]));
        assert!(!in_hand.goes_on(0) && in_hand.goes_on(1));
        in_hand.finish(&head.expect("it came again"));
        assert_eq!((in_hand.hold_back(), in_hand.progress()), ((vec![], vec![0]), vec![(0, 20), (1, 20)]));
    }
}
