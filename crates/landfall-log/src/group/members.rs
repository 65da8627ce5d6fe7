//! Who is present in a group, and who has fallen silent.
//!
//! A member shows that it is alive by waiting in `next`, by acknowledging and by giving back. One that does none of
//! this for the session timeout is passed over when partitions are shared out, but only when somebody else is there
//! to ask for them: nothing is gained by taking partitions from the only member. It is back with its next call.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// The members of a group on a topic, by the numbers they were given when they joined.
#[derive(Debug)]
pub(crate) struct Members {
    session_timeout: Duration,
    next_id: u64,
    present: BTreeMap<u64, Presence>,
}

#[derive(Debug)]
struct Presence {
    /// The last sign of life.
    seen: Instant,
    /// It is in `next`, and so alive without giving signs.
    is_waiting: bool,
    /// It was silent for too long and has no partitions.
    is_silent: bool,
}

impl Members {
    pub(crate) fn new(session_timeout: Duration) -> Self {
        Self { session_timeout, next_id: 0, present: BTreeMap::new() }
    }

    /// How many there are, the silent ones included.
    pub(crate) fn count(&self) -> usize {
        self.present.len()
    }

    /// Those who share the partitions.
    pub(crate) fn active(&self) -> Vec<u64> {
        self.present.iter().filter(|(_, presence)| !presence.is_silent).map(|(id, _)| *id).collect()
    }

    pub(crate) fn join(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.present.insert(id, Presence { seen: Instant::now(), is_waiting: false, is_silent: false });
        id
    }

    pub(crate) fn leave(&mut self, id: u64) {
        self.present.remove(&id);
    }

    /// A sign of life. It does not bring back the partitions of a member that was silent: only waiting for
    /// something to be delivered does.
    pub(crate) fn seen(&mut self, id: u64) {
        if let Some(presence) = self.present.get_mut(&id) {
            presence.seen = Instant::now();
        }
    }

    /// `id` waits in `next` from now on, or no longer. Whether it was silent before.
    pub(crate) fn set_waiting(&mut self, id: u64, is_waiting: bool) -> bool {
        let Some(presence) = self.present.get_mut(&id) else { return false };
        presence.seen = Instant::now();
        presence.is_waiting = is_waiting;
        is_waiting && std::mem::take(&mut presence.is_silent)
    }

    /// Passes over those who have been silent for too long; whether there were any. `asking` is alive, since it asks.
    pub(crate) fn pass_over_silent(&mut self, asking: u64) -> bool {
        let (now, timeout, mut any) = (Instant::now(), self.session_timeout, false);
        for (id, presence) in &mut self.present {
            let is_silent = *id != asking && !presence.is_waiting && now.duration_since(presence.seen) >= timeout;
            if is_silent && !presence.is_silent {
                presence.is_silent = true;
                any = true;
            }
        }
        any
    }

    /// The earliest moment at which another member than `asking` can be found silent; `None` if there is no other.
    ///
    /// One that waits now may stop waiting in the next moment and never be heard of again, so it counts as just seen.
    pub(crate) fn deadline(&self, asking: u64) -> Option<Instant> {
        let now = Instant::now();
        let others = self.present.iter().filter(|(id, presence)| **id != asking && !presence.is_silent);
        let seen = others.map(|(_, presence)| if presence.is_waiting { now } else { presence.seen }).min()?;
        // A timeout that no clock can count to never comes.
        seen.checked_add(self.session_timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn only_who_gives_no_sign_at_all_is_silent() {
        let mut members = Members::new(TIMEOUT);
        let (asks, waits, acknowledges, sleeps) = (members.join(), members.join(), members.join(), members.join());
        members.set_waiting(waits, true);
        tokio::time::advance(TIMEOUT / 2).await;
        members.seen(acknowledges);
        tokio::time::advance(TIMEOUT / 2).await;
        assert!(members.pass_over_silent(asks));
        assert!(!members.pass_over_silent(asks), "that is told once");
        assert_eq!(members.active(), [asks, waits, acknowledges]);

        members.seen(sleeps);
        assert_eq!(members.active(), [asks, waits, acknowledges], "a late sign does not bring it back");
        assert!(members.set_waiting(sleeps, true), "waiting does");
        assert_eq!(members.active(), [asks, waits, acknowledges, sleeps]);
        members.leave(waits);
        assert_eq!((members.active(), members.count()), (vec![asks, acknowledges, sleeps], 3));
    }

    #[tokio::test(start_paused = true)]
    async fn the_deadline_is_that_of_the_other_who_was_silent_longest() {
        let mut members = Members::new(TIMEOUT);
        let asks = members.join();
        assert_eq!(members.deadline(asks), None, "nobody else is there");
        let joined = Instant::now();
        let (waits, holds) = (members.join(), members.join());
        members.set_waiting(waits, true);
        tokio::time::advance(TIMEOUT / 3).await;
        assert_eq!(members.deadline(asks), Some(joined + TIMEOUT));
        members.seen(holds);
        assert_eq!(members.deadline(asks), Some(Instant::now() + TIMEOUT));
        tokio::time::advance(TIMEOUT).await;
        assert!(members.pass_over_silent(asks));
        assert_eq!(members.deadline(asks), Some(Instant::now() + TIMEOUT), "only the one who waits is left");
    }
}
