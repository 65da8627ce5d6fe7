//! The other members of a group.
//!
//! Members announce themselves over core NATS. Correctness does not depend on it: the consumer of a shard records its
//! owner. A member that is silent for the session timeout counts as gone, and its shards are claimed by others.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

/// A unique name for every subscriber; later ones are greater.
pub(crate) type MemberName = String;

/// What a member announces, with its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Announcement {
    /// It has joined; the others answer at once.
    Hello(MemberName),
    Here(MemberName),
    /// It has given up shards, or lost one.
    Moved(MemberName),
    Leaving(MemberName),
}

impl Announcement {
    pub(crate) fn to_text(&self) -> String {
        match self {
            Self::Hello(name) => format!("hello {name}"),
            Self::Here(name) => format!("here {name}"),
            Self::Moved(name) => format!("moved {name}"),
            Self::Leaving(name) => format!("leaving {name}"),
        }
    }

    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let (kind, name) = std::str::from_utf8(text).ok()?.split_once(' ')?;
        let name = name.to_owned();
        match kind {
            "hello" => Some(Self::Hello(name)),
            "here" => Some(Self::Here(name)),
            "moved" => Some(Self::Moved(name)),
            "leaving" => Some(Self::Leaving(name)),
            _ => None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Peers {
    me: MemberName,
    session: Duration,
    /// When each of the others was last heard, or first missed.
    seen: HashMap<MemberName, Instant>,
}

impl Peers {
    pub(crate) fn new(me: MemberName, session: Duration) -> Self {
        Self { me, session, seen: HashMap::new() }
    }

    /// Records an announcement. Returns whether it may change the assignment.
    pub(crate) fn hear(&mut self, announcement: &Announcement) -> bool {
        match announcement {
            Announcement::Hello(name) | Announcement::Here(name) | Announcement::Moved(name) if *name == self.me => {
                false
            }
            Announcement::Here(name) => self.seen.insert(name.clone(), Instant::now()).is_none(),
            Announcement::Hello(name) | Announcement::Moved(name) => {
                self.seen.insert(name.clone(), Instant::now());
                true
            }
            Announcement::Leaving(name) => self.seen.remove(name).is_some() || *name != self.me,
        }
    }

    /// The present members, sorted: those heard within the session timeout, and owners of shards that were not heard
    /// yet, for the same time.
    pub(crate) fn present<'a>(&mut self, owners: impl Iterator<Item = &'a MemberName>) -> Vec<MemberName> {
        let now = Instant::now();
        for owner in owners.filter(|owner| **owner != self.me) {
            self.seen.entry(owner.clone()).or_insert(now);
        }
        let session = self.session;
        let mut members: Vec<_> =
            self.seen.iter().filter(|(_, seen)| now - **seen < session).map(|(name, _)| name.clone()).collect();
        members.push(self.me.clone());
        members.sort();
        members
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announcement_is_parsed_as_it_was_written() {
        let name = || "0190-member".to_owned();
        for announcement in [
            Announcement::Hello(name()),
            Announcement::Here(name()),
            Announcement::Moved(name()),
            Announcement::Leaving(name()),
        ] {
            assert_eq!(Announcement::parse(announcement.to_text().as_bytes()), Some(announcement));
        }
        assert_eq!(Announcement::parse(b"gibberish"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_owner_is_gone_after_the_session_timeout() {
        let session = Duration::from_secs(10);
        let mut members = Peers::new("b".into(), session);
        let owner = "a".to_owned();
        assert_eq!(members.present([&owner].into_iter()), ["a", "b"]);
        tokio::time::advance(session / 2).await;
        assert!(!members.hear(&Announcement::Here("a".into())));
        tokio::time::advance(session - Duration::from_millis(1)).await;
        assert_eq!(members.present([&owner].into_iter()), ["a", "b"]);
        tokio::time::advance(Duration::from_millis(2)).await;
        assert_eq!(members.present([&owner].into_iter()), ["b"]);
    }

    #[test]
    fn a_member_that_leaves_is_gone_at_once() {
        let mut members = Peers::new("b".into(), Duration::from_secs(10));
        assert!(members.hear(&Announcement::Hello("a".into())));
        assert!(members.hear(&Announcement::Leaving("a".into())));
        assert_eq!(members.present(std::iter::empty()), ["b"]);
    }
}
