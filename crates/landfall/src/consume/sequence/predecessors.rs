//! Messages that arrived before their predecessors (O3). Each is woken when the message right before it is applied.
//!
//! A waiting message registers first and then checks once more, so that it misses no notification. Other members of the
//! group send none: a waiting message therefore also checks again after a growing pause.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use landfall_core::{Key, Message};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The waiting messages of one key by sequence number. Copies of a message share a number.
type BySequence = BTreeMap<i64, Vec<Arc<Notify>>>;

/// All messages of a consumer that wait for a predecessor.
#[derive(Debug, Default)]
pub(super) struct Predecessors(Mutex<HashMap<Key, BySequence>>);

/// The registration of one waiting message; stores notifications from the moment it is made.
#[derive(Debug)]
pub(crate) struct PredecessorWait<'a> {
    registry: &'a Predecessors,
    message: &'a Message,
    notify: Arc<Notify>,
}

impl Predecessors {
    pub(super) fn register<'a>(&'a self, message: &'a Message) -> PredecessorWait<'a> {
        let notify = Arc::new(Notify::new());
        if let Some((key, number)) = key_and_sequence(message) {
            self.lock().entry(key.clone()).or_default().entry(number).or_default().push(notify.clone());
        }
        PredecessorWait { registry: self, message, notify }
    }

    /// Wakes the successor of `applied`, which may be next, and its copies and older messages, which are duplicates.
    pub(super) fn applied(&self, applied: &Message) {
        let Some((key, number)) = key_and_sequence(applied) else { return };
        if let Some(waiting) = self.lock().get(key) {
            let woken = waiting.range(..=number.saturating_add(1)).flat_map(|(_, waits)| waits);
            woken.for_each(|notify| notify.notify_one());
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, BySequence>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PredecessorWait<'_> {
    /// Waits for a notification, at most for `pause`. Returns `false` when stopped.
    pub(crate) async fn notified(&self, pause: Duration, stop: &CancellationToken) -> bool {
        tokio::select! {
            () = stop.cancelled() => false,
            () = self.notify.notified() => true,
            () = tokio::time::sleep(pause) => true,
        }
    }
}

impl Drop for PredecessorWait<'_> {
    fn drop(&mut self) {
        let Some((key, number)) = key_and_sequence(self.message) else { return };
        let mut keys = self.registry.lock();
        let Some(waiting) = keys.get_mut(key) else { return };
        if let Some(waits) = waiting.get_mut(&number) {
            waits.retain(|notify| !Arc::ptr_eq(notify, &self.notify));
        }
        waiting.retain(|_, waits| !waits.is_empty());
        if waiting.is_empty() {
            keys.remove(key);
        }
    }
}

fn key_and_sequence(message: &Message) -> Option<(&Key, i64)> {
    message.key.as_ref().zip(message.sequence)
}

#[cfg(test)]
mod tests {
    use landfall_core::TopicName;

    use super::*;

    fn message(key: &str, number: i64) -> Message {
        let topic = TopicName::new("orders").unwrap();
        Message::new(topic, "").with_key(Key::new(key).unwrap()).with_sequence(number)
    }

    /// The paused clock advances only while every task sleeps: elapsed time means that no notification came.
    #[tokio::test(start_paused = true)]
    async fn only_the_next_sequence_number_is_woken() {
        let (registry, stop) = (Predecessors::default(), CancellationToken::new());
        let (long, start) = (Duration::from_secs(3600), tokio::time::Instant::now());
        let messages = [message("a", 4), message("a", 4), message("a", 6), message("b", 4)];
        let waits = messages.each_ref().map(|message| registry.register(message));
        // Sent before any of them waits: the registration stores it.
        registry.applied(&message("a", 3));
        let mut times = Vec::new();
        for wait in waits {
            assert!(wait.notified(long, &stop).await);
            times.push(start.elapsed());
        }
        assert_eq!(times, [Duration::ZERO, Duration::ZERO, long, long * 2]);
        assert!(registry.lock().is_empty(), "every registration is removed");
    }
}
