//! Messages that came before their predecessors (O3): each is told when the one right before it has taken effect.
//!
//! Whoever waits takes its place first and looks once more afterwards, so that no call is missed. What another member
//! applied is not heard of here: so nobody waits for the call alone, but also looks again after a pause that grows.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use landfall_core::{Key, Message};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Of one key, who waits under which number. Copies of a message wait under the same.
type Numbers = BTreeMap<i64, Vec<Arc<Notify>>>;

#[derive(Debug, Default)]
pub(super) struct Waiting(Mutex<HashMap<Key, Numbers>>);

/// One that waits; calls are remembered from the moment it was taken.
#[derive(Debug)]
pub(super) struct Place<'a> {
    waiting: &'a Waiting,
    message: &'a Message,
    call: Arc<Notify>,
}

impl Waiting {
    pub(super) fn enter<'a>(&'a self, message: &'a Message) -> Place<'a> {
        let call = Arc::new(Notify::new());
        if let Some((key, number)) = name_of(message) {
            self.keys().entry(key.clone()).or_default().entry(number).or_default().push(call.clone());
        }
        Place { waiting: self, message, call }
    }

    /// `applied` has taken effect: its successor may be next, and whoever has its number or a lower one is late.
    pub(super) fn reached(&self, applied: &Message) {
        let Some((key, number)) = name_of(applied) else { return };
        if let Some(numbers) = self.keys().get(key) {
            let called = numbers.range(..=number.saturating_add(1)).flat_map(|(_, calls)| calls);
            called.for_each(|call| call.notify_one());
        }
    }

    fn keys(&self) -> MutexGuard<'_, HashMap<Key, Numbers>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place<'_> {
    /// Waits to be called, at most for `pause`. `false` if it was stopped.
    pub(super) async fn called(&self, pause: Duration, stop: &CancellationToken) -> bool {
        tokio::select! {
            () = stop.cancelled() => false,
            () = self.call.notified() => true,
            () = tokio::time::sleep(pause) => true,
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let Some((key, number)) = name_of(self.message) else { return };
        let mut keys = self.waiting.keys();
        let Some(numbers) = keys.get_mut(key) else { return };
        if let Some(calls) = numbers.get_mut(&number) {
            calls.retain(|call| !Arc::ptr_eq(call, &self.call));
        }
        numbers.retain(|_, calls| !calls.is_empty());
        if numbers.is_empty() {
            keys.remove(key);
        }
    }
}

fn name_of(message: &Message) -> Option<(&Key, i64)> {
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

    /// The clock stands still unless everybody sleeps, so a time that has passed is a call that did not come.
    #[tokio::test(start_paused = true)]
    async fn the_next_number_is_called_and_those_behind_it_sleep_on() {
        let (waiting, stop) = (Waiting::default(), CancellationToken::new());
        let (long, begun) = (Duration::from_secs(3600), tokio::time::Instant::now());
        let messages = [message("a", 4), message("a", 4), message("a", 6), message("b", 4)];
        let places = messages.each_ref().map(|message| waiting.enter(message));
        // Before anybody waits: the call is not missed.
        waiting.reached(&message("a", 3));
        let mut times = Vec::new();
        for place in places {
            assert!(place.called(long, &stop).await);
            times.push(begun.elapsed());
        }
        assert_eq!(times, [Duration::ZERO, Duration::ZERO, long, long * 2]);
        assert!(waiting.keys().is_empty(), "nobody is left behind");
    }
}
