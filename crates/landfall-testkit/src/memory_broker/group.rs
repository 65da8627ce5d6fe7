//! A consumer group on one topic: what was handed out, and what is to come again.
//!
//! Every offset below `next` is in exactly one of three states: in flight (a delivery exists), returned (comes again
//! once it is due), or finished (in neither map).

use std::collections::BTreeMap;

use tokio::time::Instant;

/// One delivery. A later delivery of the same offset has another, so that what an old one does is recognised as late.
pub(super) type Token = u64;

#[derive(Debug, Default)]
pub(super) struct Group {
    next: u64,
    tokens: Token,
    in_flight: BTreeMap<u64, (Token, u64)>,
    returned: BTreeMap<u64, Instant>,
    members: u64,
}

/// What a subscriber finds when it asks.
#[derive(Debug)]
pub(super) enum Found {
    Offset(u64, Token),
    /// Nothing now; the first returned message is due then.
    Later(Option<Instant>),
}

impl Group {
    pub(super) fn join(&mut self) -> u64 {
        self.members += 1;
        self.members
    }

    /// Hands out the lowest offset that is due, out of `stored` messages.
    pub(super) fn hand_out(&mut self, member: u64, stored: u64, now: Instant) -> Found {
        let due = self.returned.iter().find(|(_, due)| **due <= now).map(|(offset, _)| *offset);
        let offset = match due {
            Some(offset) => {
                self.returned.remove(&offset);
                offset
            }
            None if self.next < stored => {
                self.next += 1;
                self.next - 1
            }
            None => return Found::Later(self.returned.values().min().copied()),
        };
        self.tokens += 1;
        self.in_flight.insert(offset, (self.tokens, member));
        Found::Offset(offset, self.tokens)
    }

    /// Out of `stored` messages.
    pub(super) fn unfinished(&self, stored: u64) -> u64 {
        stored.saturating_sub(self.next) + (self.in_flight.len() + self.returned.len()) as u64
    }

    /// Finished, even if its member left meanwhile and it was to come again.
    pub(super) fn finish(&mut self, offset: u64, token: Token) {
        match self.in_flight.get(&offset) {
            Some((current, _)) if *current != token => {}
            Some(_) => {
                self.in_flight.remove(&offset);
            }
            None => {
                self.returned.remove(&offset);
            }
        }
    }

    /// Comes again at `due`, unless this delivery is no longer the one that counts.
    pub(super) fn give_back(&mut self, offset: u64, token: Token, due: Instant) {
        if self.in_flight.get(&offset).is_some_and(|(current, _)| *current == token) {
            self.in_flight.remove(&offset);
            self.returned.insert(offset, due);
        }
    }

    /// What `member` has not finished comes again at once.
    pub(super) fn leave(&mut self, member: u64, now: Instant) {
        let (left, kept) =
            std::mem::take(&mut self.in_flight).into_iter().partition(|(_, (_, owner))| *owner == member);
        self.in_flight = kept;
        let left: BTreeMap<u64, (Token, u64)> = left;
        self.returned.extend(left.into_keys().map(|offset| (offset, now)));
    }
}
