//! The members of a group, and their session timeouts.
//!
//! A member shows that it is alive by waiting in `next`, acknowledging, or giving back a delivery. A member that does
//! none of this for the session timeout loses its partitions, but only when another member asks for them: taking them
//! from the only member gains nothing. Its next call of `next` brings it back.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// The members of a group on a topic, by the id assigned when they joined.
#[derive(Debug)]
pub(crate) struct Members {
    session_timeout: Duration,
    next_id: u64,
    sessions: BTreeMap<u64, Session>,
}

#[derive(Debug)]
struct Session {
    /// Time of the last activity.
    last_active: Instant,
    /// It is in `next`, and so alive without further activity.
    is_waiting: bool,
    /// Its session timed out and it has no partitions.
    is_expired: bool,
}

impl Members {
    pub(crate) fn new(session_timeout: Duration) -> Self {
        Self { session_timeout, next_id: 0, sessions: BTreeMap::new() }
    }

    /// The number of members, including timed-out ones.
    pub(crate) fn count(&self) -> usize {
        self.sessions.len()
    }

    /// The members that share the partitions.
    pub(crate) fn active(&self) -> Vec<u64> {
        self.sessions.iter().filter(|(_, session)| !session.is_expired).map(|(id, _)| *id).collect()
    }

    pub(crate) fn join(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.sessions.insert(id, Session { last_active: Instant::now(), is_waiting: false, is_expired: false });
        id
    }

    pub(crate) fn leave(&mut self, id: u64) {
        self.sessions.remove(&id);
    }

    /// Records activity. This does not restore the partitions of a timed-out member; only waiting for a delivery does.
    pub(crate) fn record_activity(&mut self, id: u64) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.last_active = Instant::now();
        }
    }

    /// Records that `id` starts or stops waiting in `next`. Returns whether this revives a timed-out member.
    pub(crate) fn set_waiting(&mut self, id: u64, is_waiting: bool) -> bool {
        let Some(session) = self.sessions.get_mut(&id) else { return false };
        session.last_active = Instant::now();
        session.is_waiting = is_waiting;
        is_waiting && std::mem::take(&mut session.is_expired)
    }

    /// Marks members whose session timed out, and returns whether there are new ones. `asking` is alive, since it
    /// asks.
    pub(crate) fn expire_sessions(&mut self, asking: u64) -> bool {
        let (now, timeout, mut any) = (Instant::now(), self.session_timeout, false);
        for (id, session) in &mut self.sessions {
            let is_expired = *id != asking && !session.is_waiting && now.duration_since(session.last_active) >= timeout;
            if is_expired && !session.is_expired {
                session.is_expired = true;
                any = true;
            }
        }
        any
    }

    /// The earliest time at which the session of a member other than `asking` can time out; `None` if there is no
    /// other.
    ///
    /// A member that is waiting may stop in the next moment and then stay silent, so it counts as active now.
    pub(crate) fn deadline(&self, asking: u64) -> Option<Instant> {
        let now = Instant::now();
        let others = self.sessions.iter().filter(|(id, session)| **id != asking && !session.is_expired);
        let last_active =
            others.map(|(_, session)| if session.is_waiting { now } else { session.last_active }).min()?;
        // A timeout beyond the range of the clock never expires.
        last_active.checked_add(self.session_timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn only_inactive_members_time_out() {
        let mut members = Members::new(TIMEOUT);
        let (asks, waits, acknowledges, sleeps) = (members.join(), members.join(), members.join(), members.join());
        members.set_waiting(waits, true);
        tokio::time::advance(TIMEOUT / 2).await;
        members.record_activity(acknowledges);
        tokio::time::advance(TIMEOUT / 2).await;
        assert!(members.expire_sessions(asks));
        assert!(!members.expire_sessions(asks), "a timeout is reported once");
        assert_eq!(members.active(), [asks, waits, acknowledges]);

        members.record_activity(sleeps);
        assert_eq!(members.active(), [asks, waits, acknowledges], "late activity does not bring it back");
        assert!(members.set_waiting(sleeps, true), "waiting does");
        assert_eq!(members.active(), [asks, waits, acknowledges, sleeps]);
        members.leave(waits);
        assert_eq!((members.active(), members.count()), (vec![asks, acknowledges, sleeps], 3));
    }

    #[tokio::test(start_paused = true)]
    async fn deadline_is_that_of_the_longest_inactive_other_member() {
        let mut members = Members::new(TIMEOUT);
        let asks = members.join();
        assert_eq!(members.deadline(asks), None, "there is no other member");
        let joined = Instant::now();
        let (waits, holds) = (members.join(), members.join());
        members.set_waiting(waits, true);
        tokio::time::advance(TIMEOUT / 3).await;
        assert_eq!(members.deadline(asks), Some(joined + TIMEOUT));
        members.record_activity(holds);
        assert_eq!(members.deadline(asks), Some(Instant::now() + TIMEOUT));
        tokio::time::advance(TIMEOUT).await;
        assert!(members.expire_sessions(asks));
        assert_eq!(members.deadline(asks), Some(Instant::now() + TIMEOUT), "only the waiting member is left");
    }
}
