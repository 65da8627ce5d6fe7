//! The members of a group, as one of them hears of the others.
//!
//! They tell each other over plain NATS that they are there. Nothing depends on it being true: who owns a shard stands
//! in its consumer. A member that is not heard is taken for gone after a while, and its shards with it.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::plan::MemberName;

/// What a member says: a word and its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Word {
    /// New here; the others answer at once.
    Hello(MemberName),
    Here(MemberName),
    /// Has given shards away, or was told that one is not its own any more.
    Moved(MemberName),
    Leaving(MemberName),
}

impl Word {
    pub(crate) fn to_text(&self) -> String {
        match self {
            Self::Hello(name) => format!("hello {name}"),
            Self::Here(name) => format!("here {name}"),
            Self::Moved(name) => format!("moved {name}"),
            Self::Leaving(name) => format!("leaving {name}"),
        }
    }

    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let (word, name) = std::str::from_utf8(text).ok()?.split_once(' ')?;
        let name = name.to_owned();
        match word {
            "hello" => Some(Self::Hello(name)),
            "here" => Some(Self::Here(name)),
            "moved" => Some(Self::Moved(name)),
            "leaving" => Some(Self::Leaving(name)),
            _ => None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Members {
    me: MemberName,
    session: Duration,
    /// When each of the others was heard last, or first missed.
    seen: HashMap<MemberName, Instant>,
}

impl Members {
    pub(crate) fn new(me: MemberName, session: Duration) -> Self {
        Self { me, session, seen: HashMap::new() }
    }

    /// Whether it changes who is there, or who has what.
    pub(crate) fn hear(&mut self, word: &Word) -> bool {
        match word {
            Word::Hello(name) | Word::Here(name) | Word::Moved(name) if *name == self.me => false,
            Word::Here(name) => self.seen.insert(name.clone(), Instant::now()).is_none(),
            Word::Hello(name) | Word::Moved(name) => {
                self.seen.insert(name.clone(), Instant::now());
                true
            }
            Word::Leaving(name) => self.seen.remove(name).is_some() || *name != self.me,
        }
    }

    /// Everybody who is there, in order: whoever was heard of late, and the owners of shards that were not heard yet,
    /// for as long as they may still be.
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
    fn words_are_read_as_they_were_said() {
        let name = || "0190-member".to_owned();
        for word in [Word::Hello(name()), Word::Here(name()), Word::Moved(name()), Word::Leaving(name())] {
            assert_eq!(Word::parse(word.to_text().as_bytes()), Some(word));
        }
        assert_eq!(Word::parse(b"gibberish"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_owner_is_given_its_time_and_then_gone() {
        let session = Duration::from_secs(10);
        let mut members = Members::new("b".into(), session);
        let owner = "a".to_owned();
        assert_eq!(members.present([&owner].into_iter()), ["a", "b"]);
        tokio::time::advance(session / 2).await;
        assert!(!members.hear(&Word::Here("a".into())));
        tokio::time::advance(session - Duration::from_millis(1)).await;
        assert_eq!(members.present([&owner].into_iter()), ["a", "b"]);
        tokio::time::advance(Duration::from_millis(2)).await;
        assert_eq!(members.present([&owner].into_iter()), ["b"]);
    }

    #[test]
    fn whoever_says_goodbye_is_gone_at_once() {
        let mut members = Members::new("b".into(), Duration::from_secs(10));
        assert!(members.hear(&Word::Hello("a".into())));
        assert!(members.hear(&Word::Leaving("a".into())));
        assert_eq!(members.present(std::iter::empty()), ["b"]);
    }
}
