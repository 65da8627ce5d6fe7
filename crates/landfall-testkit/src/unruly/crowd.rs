//! What all members share: the troubles, the counts, and the copies that wait for whoever takes them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use landfall_core::{GroupName, Message, Position, TopicName};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::fate::Fate;
use super::happened::Happened;
use super::troubles::Troubles;

/// A copy is for other members at first; after this long its own member may take it as well.
const PREFERS_OTHERS: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct Shared {
    troubles: Troubles,
    is_healed: AtomicBool,
    members: AtomicU64,
    published: AtomicU64,
    state: Mutex<State>,
    /// Told when there is a copy to take, or everything is healed.
    pub(super) changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    happened: Happened,
    groups: HashMap<(TopicName, GroupName), Crowd>,
    /// Copies that are made and not acknowledged, waiting or handed out.
    outstanding: usize,
}

impl State {
    fn crowd(&mut self, topic: &TopicName, group: &GroupName) -> &mut Crowd {
        self.groups.entry((topic.clone(), group.clone())).or_default()
    }
}

/// A group on a topic.
#[derive(Debug, Default)]
struct Crowd {
    members: usize,
    /// How often each message has come.
    times: HashMap<(u32, u64), u32>,
    copies: Vec<Copied>,
}

/// A copy that waits.
#[derive(Debug, Clone)]
pub(super) struct Copied {
    pub(super) message: Message,
    pub(super) position: Position,
    /// Who got the message itself.
    pub(super) member: u64,
    pub(super) due: Instant,
}

impl Shared {
    pub(super) fn new(troubles: Troubles) -> Self {
        Self {
            troubles,
            is_healed: AtomicBool::new(false),
            members: AtomicU64::new(0),
            published: AtomicU64::new(0),
            state: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// None once it is healed.
    pub(super) fn troubles(&self) -> Troubles {
        if self.is_healed() { Troubles::none(self.troubles.seed) } else { self.troubles }
    }

    pub(super) fn is_healed(&self) -> bool {
        self.is_healed.load(Ordering::SeqCst)
    }

    pub(super) fn heal(&self) {
        self.is_healed.store(true, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    pub(super) fn happened(&self) -> Happened {
        self.state().happened
    }

    pub(super) fn count(&self, count: impl FnOnce(&mut Happened)) {
        count(&mut self.state().happened);
    }

    pub(super) fn outstanding_copies(&self) -> usize {
        self.state().outstanding
    }

    pub(super) fn number_of_publish(&self) -> u64 {
        self.published.fetch_add(1, Ordering::SeqCst)
    }

    /// A number for a new member of the group.
    pub(super) fn join(&self, topic: &TopicName, group: &GroupName) -> u64 {
        self.crowd(topic, group, |crowd| crowd.members += 1);
        self.members.fetch_add(1, Ordering::SeqCst)
    }

    pub(super) fn leave(&self, topic: &TopicName, group: &GroupName) {
        self.crowd(topic, group, |crowd| crowd.members -= 1);
        self.changed.notify_waiters();
    }

    /// What happens to the message at `position`, which comes once more.
    pub(super) fn fate(&self, topic: &TopicName, group: &GroupName, position: Position) -> Fate {
        let place = (position.partition, position.offset);
        let times = self.crowd(topic, group, |crowd| {
            let times = crowd.times.entry(place).or_default();
            std::mem::replace(times, *times + 1)
        });
        Fate::of(&self.troubles(), &(topic.as_str(), group.as_str(), place, times))
    }

    pub(super) fn make_copies(&self, topic: &TopicName, group: &GroupName, copied: &Copied, after: &[Duration]) {
        let copies = after.iter().map(|after| Copied { due: Instant::now() + *after, ..copied.clone() });
        let mut state = self.state();
        // Counted under the lock that shows them: another member may take one and be done with it at once.
        state.outstanding += after.len();
        state.crowd(topic, group).copies.extend(copies);
        state.happened.duplicated += u64::from(!after.is_empty());
        state.happened.copies += after.len() as u64;
        drop(state);
        self.changed.notify_waiters();
    }

    /// A copy that was given back comes again.
    pub(super) fn give_back(&self, topic: &TopicName, group: &GroupName, copied: Copied) {
        self.crowd(topic, group, |crowd| crowd.copies.push(copied));
        self.changed.notify_waiters();
    }

    /// Copies of what `member` was handed out are gone with its membership: the messages themselves come again, and a copy
    /// that came before them would overtake their predecessors.
    pub(super) fn drop_copies(&self, topic: &TopicName, group: &GroupName, member: u64) {
        let mut state = self.state();
        let crowd = state.crowd(topic, group);
        let before = crowd.copies.len();
        crowd.copies.retain(|copied| copied.member != member);
        let dropped = before - crowd.copies.len();
        state.outstanding -= dropped;
    }

    pub(super) fn copy_is_done(&self) {
        self.state().outstanding -= 1;
    }

    /// A copy that `member` may take now, else when to look again.
    pub(super) fn take_copy(
        &self,
        topic: &TopicName,
        group: &GroupName,
        member: u64,
    ) -> Result<Copied, Option<Instant>> {
        let (now, is_healed) = (Instant::now(), self.is_healed());
        self.crowd(topic, group, |crowd| {
            let is_alone = crowd.members <= 1;
            let when = |copied: &Copied| match copied.member == member && !is_alone {
                true => copied.due + PREFERS_OTHERS,
                false => copied.due,
            };
            match crowd.copies.iter().position(|copied| is_healed || when(copied) <= now) {
                Some(found) => Ok(crowd.copies.remove(found)),
                None => Err(crowd.copies.iter().map(when).min()),
            }
        })
    }

    fn crowd<T>(&self, topic: &TopicName, group: &GroupName, act: impl FnOnce(&mut Crowd) -> T) -> T {
        act(self.state().crowd(topic, group))
    }

    /// A panic while the lock was held is a test that has failed already, so a poisoned lock is taken as it is.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_counts_before_anybody_can_be_done_with_it() {
        const COPIES: usize = 20_000;
        let (topic, group) = (TopicName::new("orders").unwrap(), GroupName::new("stock").unwrap());
        let shared = Shared::new(Troubles::none(1));
        let (maker, taker) = (shared.join(&topic, &group), shared.join(&topic, &group));
        let position = Position { partition: 0, offset: 0 };
        let message = Message::new(topic.clone(), "one book");
        let copied = Copied { message, position, member: maker, due: Instant::now() };
        std::thread::scope(|threads| {
            threads.spawn(|| {
                for _ in 0..COPIES {
                    shared.make_copies(&topic, &group, &copied, &[Duration::ZERO]);
                }
            });
            threads.spawn(|| {
                let mut done = 0;
                while done < COPIES {
                    if shared.take_copy(&topic, &group, taker).is_ok() {
                        // Below zero it panics.
                        shared.copy_is_done();
                        done += 1;
                    }
                }
            });
        });
        assert_eq!(shared.outstanding_copies(), 0);
    }
}
