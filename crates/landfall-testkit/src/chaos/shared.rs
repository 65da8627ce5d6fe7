//! State shared by all members: options, counters, and duplicates waiting to be delivered.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use landfall_core::{GroupName, Message, Position, TopicName};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::counts::ChaosCounts;
use super::delivery_faults::DeliveryFaults;
use super::options::ChaosOptions;

/// How long a duplicate is reserved for other members before its own member may receive it.
const RESERVED_FOR_OTHERS: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct Shared {
    options: ChaosOptions,
    is_healed: AtomicBool,
    members: AtomicU64,
    published: AtomicU64,
    state: Mutex<State>,
    /// Notified when a duplicate becomes available or faults end.
    pub(super) changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    counts: ChaosCounts,
    groups: HashMap<(TopicName, GroupName), GroupState>,
    /// Unacknowledged duplicates, waiting or in flight.
    unacked_duplicates: usize,
}

impl State {
    fn group(&mut self, topic: &TopicName, group: &GroupName) -> &mut GroupState {
        self.groups.entry((topic.clone(), group.clone())).or_default()
    }
}

/// A group on a topic.
#[derive(Debug, Default)]
struct GroupState {
    members: usize,
    /// Deliveries so far, by partition and offset.
    deliveries: HashMap<(u32, u64), u32>,
    duplicates: Vec<Duplicate>,
}

/// A duplicate that waits to be delivered.
#[derive(Debug, Clone)]
pub(super) struct Duplicate {
    pub(super) message: Message,
    pub(super) position: Position,
    /// The member that received the original.
    pub(super) member: u64,
    pub(super) due: Instant,
}

impl Shared {
    pub(super) fn new(options: ChaosOptions) -> Self {
        Self {
            options,
            is_healed: AtomicBool::new(false),
            members: AtomicU64::new(0),
            published: AtomicU64::new(0),
            state: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// The current fault rates: all zero once healed.
    pub(super) fn options(&self) -> ChaosOptions {
        if self.is_healed() { ChaosOptions::none(self.options.seed) } else { self.options }
    }

    pub(super) fn is_healed(&self) -> bool {
        self.is_healed.load(Ordering::SeqCst)
    }

    pub(super) fn heal(&self) {
        self.is_healed.store(true, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    pub(super) fn counts(&self) -> ChaosCounts {
        self.state().counts
    }

    pub(super) fn count(&self, count: impl FnOnce(&mut ChaosCounts)) {
        count(&mut self.state().counts);
    }

    pub(super) fn unacked_duplicates(&self) -> usize {
        self.state().unacked_duplicates
    }

    pub(super) fn next_publish_number(&self) -> u64 {
        self.published.fetch_add(1, Ordering::SeqCst)
    }

    /// Adds a member to the group and returns its number.
    pub(super) fn join(&self, topic: &TopicName, group: &GroupName) -> u64 {
        self.with_group(topic, group, |state| state.members += 1);
        self.members.fetch_add(1, Ordering::SeqCst)
    }

    pub(super) fn leave(&self, topic: &TopicName, group: &GroupName) {
        self.with_group(topic, group, |state| state.members -= 1);
        self.changed.notify_waiters();
    }

    /// Counts one more delivery of the message at `position` and returns the faults of this delivery.
    pub(super) fn next_faults(&self, topic: &TopicName, group: &GroupName, position: Position) -> DeliveryFaults {
        let position = (position.partition, position.offset);
        let earlier_deliveries = self.with_group(topic, group, |state| {
            let deliveries = state.deliveries.entry(position).or_default();
            std::mem::replace(deliveries, *deliveries + 1)
        });
        DeliveryFaults::draw(&self.options(), &(topic.as_str(), group.as_str(), position, earlier_deliveries))
    }

    /// Queues one duplicate of `original` for each delay in `after`.
    pub(super) fn duplicate(&self, topic: &TopicName, group: &GroupName, original: &Duplicate, after: &[Duration]) {
        let duplicates = after.iter().map(|after| Duplicate { due: Instant::now() + *after, ..original.clone() });
        let mut state = self.state();
        // Counted under the lock that publishes them: another member may receive and acknowledge one at once.
        state.unacked_duplicates += after.len();
        state.group(topic, group).duplicates.extend(duplicates);
        state.counts.duplicated += u64::from(!after.is_empty());
        state.counts.duplicates += after.len() as u64;
        drop(state);
        self.changed.notify_waiters();
    }

    /// Returns a nacked or dropped duplicate to the queue: it is redelivered.
    pub(super) fn requeue(&self, topic: &TopicName, group: &GroupName, duplicate: Duplicate) {
        self.with_group(topic, group, |state| state.duplicates.push(duplicate));
        self.changed.notify_waiters();
    }

    /// Discards the queued duplicates of `member`'s deliveries when its membership is lost.
    ///
    /// The originals are redelivered; a duplicate that came before them would overtake their predecessors.
    pub(super) fn discard_duplicates(&self, topic: &TopicName, group: &GroupName, member: u64) {
        let mut state = self.state();
        let group = state.group(topic, group);
        let before = group.duplicates.len();
        group.duplicates.retain(|duplicate| duplicate.member != member);
        let discarded = before - group.duplicates.len();
        state.unacked_duplicates -= discarded;
    }

    pub(super) fn duplicate_settled(&self) {
        self.state().unacked_duplicates -= 1;
    }

    /// Returns a duplicate that `member` may receive now, else when to ask again.
    pub(super) fn next_duplicate(
        &self,
        topic: &TopicName,
        group: &GroupName,
        member: u64,
    ) -> Result<Duplicate, Option<Instant>> {
        let (now, is_healed) = (Instant::now(), self.is_healed());
        self.with_group(topic, group, |state| {
            let is_only_member = state.members <= 1;
            let when = |duplicate: &Duplicate| match duplicate.member == member && !is_only_member {
                true => duplicate.due + RESERVED_FOR_OTHERS,
                false => duplicate.due,
            };
            match state.duplicates.iter().position(|duplicate| is_healed || when(duplicate) <= now) {
                Some(index) => Ok(state.duplicates.remove(index)),
                None => Err(state.duplicates.iter().map(when).min()),
            }
        })
    }

    fn with_group<T>(&self, topic: &TopicName, group: &GroupName, act: impl FnOnce(&mut GroupState) -> T) -> T {
        act(self.state().group(topic, group))
    }

    /// Ignores poisoning: if a task panicked with the lock held, the test has already failed.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicate_is_counted_before_it_can_be_acked() {
        const DUPLICATES: usize = 20_000;
        let (topic, group) = (TopicName::new("orders").unwrap(), GroupName::new("stock").unwrap());
        let shared = Shared::new(ChaosOptions::none(1));
        let (first, second) = (shared.join(&topic, &group), shared.join(&topic, &group));
        let position = Position { partition: 0, offset: 0 };
        let message = Message::new(topic.clone(), "one book");
        let original = Duplicate { message, position, member: first, due: Instant::now() };
        std::thread::scope(|threads| {
            threads.spawn(|| {
                for _ in 0..DUPLICATES {
                    shared.duplicate(&topic, &group, &original, &[Duration::ZERO]);
                }
            });
            threads.spawn(|| {
                let mut done = 0;
                while done < DUPLICATES {
                    if shared.next_duplicate(&topic, &group, second).is_ok() {
                        // Panics if the counter falls below zero.
                        shared.duplicate_settled();
                        done += 1;
                    }
                }
            });
        });
        assert_eq!(shared.unacked_duplicates(), 0);
    }
}
