//! Where a member keeps deliveries that are held back, in the order in which they came.

use landfall_core::{Delivery, Key};
use tokio::time::Instant;

use super::fate::Fate;

#[derive(Debug, Default)]
pub(super) struct Shelf {
    held: Vec<Held>,
}

#[derive(Debug)]
struct Held {
    delivery: Delivery,
    fate: Fate,
    key: Option<Key>,
    /// Let go then at the latest, even if nobody came to overtake it.
    until: Instant,
    /// How many more are to overtake it.
    to_pass: u32,
    was_passed: bool,
    was_passed_by_its_key: bool,
}

/// What leaves the shelf.
#[derive(Debug)]
pub(super) struct Released {
    pub(super) delivery: Delivery,
    pub(super) fate: Fate,
    pub(super) was_passed: bool,
    pub(super) was_passed_by_its_key: bool,
}

impl Shelf {
    /// Whether a message of this key is held back.
    pub(super) fn holds(&self, key: Option<&Key>) -> bool {
        key.is_some() && self.held.iter().any(|held| held.key.as_ref() == key)
    }

    pub(super) fn hold(&mut self, delivery: Delivery, fate: Fate, until: Instant, to_pass: u32) {
        let key = key_of(&delivery).cloned();
        let (was_passed, was_passed_by_its_key) = (false, false);
        self.held.push(Held { delivery, fate, key, until, to_pass, was_passed, was_passed_by_its_key });
    }

    /// The first that may go; unless `within_key`, none that one of its key stands before.
    pub(super) fn release(&mut self, now: Instant, all: bool, within_key: bool) -> Option<Released> {
        let is_free = |held: &Held| all || held.to_pass == 0 || held.until <= now;
        let place = (0..self.held.len())
            .find(|place| is_free(&self.held[*place]) && (within_key || self.is_first_of_its_key(*place)))?;
        let Held { delivery, fate, key, was_passed, was_passed_by_its_key, .. } = self.held.remove(place);
        self.passed_by(place, key.as_ref());
        Some(Released { delivery, fate, was_passed, was_passed_by_its_key })
    }

    /// One that came after all of these goes out before them.
    pub(super) fn passed(&mut self, key: Option<&Key>) {
        self.passed_by(self.held.len(), key);
    }

    fn passed_by(&mut self, place: usize, key: Option<&Key>) {
        for held in &mut self.held[..place] {
            held.to_pass = held.to_pass.saturating_sub(1);
            held.was_passed = true;
            held.was_passed_by_its_key |= key.is_some() && held.key.as_ref() == key;
        }
    }

    /// When to look again if nothing comes. One that waits for another of its key has no say in it.
    pub(super) fn next_due(&self, within_key: bool) -> Option<Instant> {
        let free = (0..self.held.len()).filter(|place| within_key || self.is_first_of_its_key(*place));
        free.map(|place| self.held[place].until).min()
    }

    fn is_first_of_its_key(&self, place: usize) -> bool {
        let key = &self.held[place].key;
        key.is_none() || !self.held[..place].iter().any(|earlier| earlier.key == *key)
    }

    /// Gives all of it back to the broker.
    pub(super) fn clear(&mut self) {
        self.held.clear();
    }
}

pub(super) fn key_of(delivery: &Delivery) -> Option<&Key> {
    delivery.message.as_ref().ok().and_then(|message| message.key.as_ref())
}
