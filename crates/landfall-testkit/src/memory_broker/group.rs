//! A consumer group on one topic.
//!
//! Every offset below `next` is in exactly one of three states: in flight (a delivery exists), returned (redelivered
//! once due), or finished (in neither map).

use std::collections::BTreeMap;

use tokio::time::Instant;

/// Identifies one delivery. A redelivery of the same offset has a new token, so that a late ack of the old one is
/// recognized.
pub(super) type DeliveryToken = u64;

#[derive(Debug, Default)]
pub(super) struct Group {
    next: u64,
    tokens: DeliveryToken,
    in_flight: BTreeMap<u64, (DeliveryToken, u64)>,
    returned: BTreeMap<u64, Instant>,
    members: u64,
}

/// The result of a request for the next delivery.
#[derive(Debug)]
pub(super) enum NextDelivery {
    Ready(u64, DeliveryToken),
    /// Nothing is ready; the first returned message is due at this time.
    Pending(Option<Instant>),
}

impl Group {
    pub(super) fn join(&mut self) -> u64 {
        self.members += 1;
        self.members
    }

    /// Hands out the lowest offset that is due, out of `stored` messages.
    pub(super) fn hand_out(&mut self, member: u64, stored: u64, now: Instant) -> NextDelivery {
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
            None => return NextDelivery::Pending(self.returned.values().min().copied()),
        };
        self.tokens += 1;
        self.in_flight.insert(offset, (self.tokens, member));
        NextDelivery::Ready(offset, self.tokens)
    }

    /// Returns how many of `stored` messages are not finished.
    pub(super) fn unfinished(&self, stored: u64) -> u64 {
        stored.saturating_sub(self.next) + (self.in_flight.len() + self.returned.len()) as u64
    }

    /// Marks `offset` finished, even if its member has left and it waits for redelivery.
    pub(super) fn finish(&mut self, offset: u64, token: DeliveryToken) {
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

    /// Schedules `offset` for redelivery at `due`, unless the token is stale.
    pub(super) fn return_for_redelivery(&mut self, offset: u64, token: DeliveryToken, due: Instant) {
        if self.in_flight.get(&offset).is_some_and(|(current, _)| *current == token) {
            self.in_flight.remove(&offset);
            self.returned.insert(offset, due);
        }
    }

    /// Schedules all unfinished deliveries of `member` for immediate redelivery.
    pub(super) fn leave(&mut self, member: u64, now: Instant) {
        let (left, kept) =
            std::mem::take(&mut self.in_flight).into_iter().partition(|(_, (_, owner))| *owner == member);
        self.in_flight = kept;
        let left: BTreeMap<u64, (DeliveryToken, u64)> = left;
        self.returned.extend(left.into_keys().map(|offset| (offset, now)));
    }
}
