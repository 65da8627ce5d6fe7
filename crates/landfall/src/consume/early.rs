//! Messages that came before their predecessors (O3): each is told when the one right before it has taken effect.
//!
//! What another member applied is not heard of here. So nobody waits for the call alone, but also looks again after a
//! pause that grows.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use landfall_core::{Key, Message};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Who waits, by key and number. Two copies of a message may wait under the same number.
#[derive(Debug, Default)]
pub(super) struct Waiting(Mutex<HashMap<Key, BTreeMap<i64, Arc<Notify>>>>);

impl Waiting {
    /// Waits until what precedes `message` has taken effect, at most for `pause`. `false` if it was stopped.
    pub(super) async fn wait(&self, message: &Message, pause: Duration, stop: &CancellationToken) -> bool {
        let call = self.enrol(message);
        let goes_on = tokio::select! {
            () = stop.cancelled() => false,
            () = tokio::time::sleep(pause) => true,
            () = called(call.as_deref()) => true,
        };
        self.leave(message, call);
        goes_on
    }

    /// `applied` has taken effect: its successor may be next, and whoever has its number or a lower one is late.
    pub(super) fn reached(&self, applied: &Message) {
        let (Some(key), Some(number)) = (&applied.key, applied.sequence) else { return };
        if let Some(numbers) = self.keys().get(key) {
            numbers.range(..=number.saturating_add(1)).for_each(|(_, call)| call.notify_waiters());
        }
    }

    fn enrol(&self, message: &Message) -> Option<Arc<Notify>> {
        let (key, number) = (message.key.as_ref()?, message.sequence?);
        let mut keys = self.keys();
        Some(keys.entry(key.clone()).or_default().entry(number).or_default().clone())
    }

    fn leave(&self, message: &Message, call: Option<Arc<Notify>>) {
        let (Some(key), Some(number), Some(call)) = (&message.key, message.sequence, call) else { return };
        let mut keys = self.keys();
        let Some(numbers) = keys.get_mut(key) else { return };
        // The map's own, and this one's: nobody else waits for the same.
        if Arc::strong_count(&call) == 2 {
            numbers.remove(&number);
        }
        if numbers.is_empty() {
            keys.remove(key);
        }
    }

    fn keys(&self) -> MutexGuard<'_, HashMap<Key, BTreeMap<i64, Arc<Notify>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn called(call: Option<&Notify>) {
    match call {
        Some(call) => call.notified().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use landfall_core::TopicName;

    use super::*;

    fn message(key: &str, number: i64) -> Message {
        let topic = TopicName::new("orders").unwrap();
        Message::new(topic, "").with_key(Key::new(key).unwrap()).with_sequence(number)
    }

    /// With the clock standing still only a call can end a wait, unless everybody sleeps.
    #[tokio::test(start_paused = true)]
    async fn the_next_number_is_called_and_those_behind_it_sleep_on() {
        let (waiting, stop) = (Arc::new(Waiting::default()), CancellationToken::new());
        let (long, begun) = (Duration::from_secs(3600), tokio::time::Instant::now());
        let wait = |key: &'static str, number| {
            let (waiting, stop) = (waiting.clone(), stop.clone());
            tokio::spawn(async move {
                waiting.wait(&message(key, number), long, &stop).await;
                begun.elapsed()
            })
        };
        let (next, copy, later, other) = (wait("a", 4), wait("a", 4), wait("a", 6), wait("b", 4));
        tokio::task::yield_now().await;
        waiting.reached(&message("a", 3));
        assert_eq!((next.await.unwrap(), copy.await.unwrap()), (Duration::ZERO, Duration::ZERO));
        assert_eq!((later.await.unwrap(), other.await.unwrap()), (long, long));
        assert!(waiting.keys().is_empty(), "nobody is left behind");
    }
}
