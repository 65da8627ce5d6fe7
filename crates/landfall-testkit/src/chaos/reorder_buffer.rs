//! Deliveries that a member holds back, in the order of arrival.

use landfall_core::Key;
use landfall_core::adapter::Delivery;
use tokio::time::Instant;

use super::delivery_faults::DeliveryFaults;

#[derive(Debug, Default)]
pub(super) struct ReorderBuffer {
    deliveries: Vec<Buffered>,
}

#[derive(Debug)]
struct Buffered {
    delivery: Delivery,
    faults: DeliveryFaults,
    key: Option<Key>,
    /// Released at this time at the latest, even if nothing has overtaken it.
    until: Instant,
    /// How many deliveries have yet to overtake it.
    remaining_overtakes: u32,
    was_overtaken: bool,
    was_overtaken_within_key: bool,
}

/// A delivery that leaves the buffer.
#[derive(Debug)]
pub(super) struct Released {
    pub(super) delivery: Delivery,
    pub(super) faults: DeliveryFaults,
    pub(super) was_overtaken: bool,
    pub(super) was_overtaken_within_key: bool,
}

impl ReorderBuffer {
    /// Whether a message of this key is held back.
    pub(super) fn holds(&self, key: Option<&Key>) -> bool {
        key.is_some() && self.deliveries.iter().any(|buffered| buffered.key.as_ref() == key)
    }

    /// Holds `delivery` back until `overtakes` later ones have been released, and at most until `until`.
    pub(super) fn hold(&mut self, delivery: Delivery, faults: DeliveryFaults, until: Instant, overtakes: u32) {
        let key = key_of(&delivery).cloned();
        self.deliveries.push(Buffered {
            delivery,
            faults,
            key,
            until,
            remaining_overtakes: overtakes,
            was_overtaken: false,
            was_overtaken_within_key: false,
        });
    }

    /// Releases the first delivery that is ready. Unless `within_key`, only the first one of each key qualifies.
    pub(super) fn release(&mut self, now: Instant, all: bool, within_key: bool) -> Option<Released> {
        let is_ready = |buffered: &Buffered| all || buffered.remaining_overtakes == 0 || buffered.until <= now;
        let index = (0..self.deliveries.len())
            .find(|index| is_ready(&self.deliveries[*index]) && (within_key || self.is_first_of_its_key(*index)))?;
        let Buffered { delivery, faults, key, was_overtaken, was_overtaken_within_key, .. } =
            self.deliveries.remove(index);
        self.mark_overtaken(index, key.as_ref());
        Some(Released { delivery, faults, was_overtaken, was_overtaken_within_key })
    }

    /// Records that a delivery which arrived after all buffered ones is handed out before them.
    pub(super) fn overtaken_by(&mut self, key: Option<&Key>) {
        self.mark_overtaken(self.deliveries.len(), key);
    }

    fn mark_overtaken(&mut self, end: usize, key: Option<&Key>) {
        for buffered in &mut self.deliveries[..end] {
            buffered.remaining_overtakes = buffered.remaining_overtakes.saturating_sub(1);
            buffered.was_overtaken = true;
            buffered.was_overtaken_within_key |= key.is_some() && buffered.key.as_ref() == key;
        }
    }

    /// When the next delivery is released if nothing arrives. Ignores those that wait behind another of their key.
    pub(super) fn next_due(&self, within_key: bool) -> Option<Instant> {
        let candidates = (0..self.deliveries.len()).filter(|index| within_key || self.is_first_of_its_key(*index));
        candidates.map(|index| self.deliveries[index].until).min()
    }

    fn is_first_of_its_key(&self, index: usize) -> bool {
        let key = &self.deliveries[index].key;
        key.is_none() || !self.deliveries[..index].iter().any(|earlier| earlier.key == *key)
    }

    /// Drops all deliveries, so that the broker redelivers them.
    pub(super) fn clear(&mut self) {
        self.deliveries.clear();
    }
}

pub(super) fn key_of(delivery: &Delivery) -> Option<&Key> {
    delivery.message.as_ref().ok().and_then(|message| message.key.as_ref())
}
