//! Visibility timeouts of the messages in flight: SQS hides a received message from other consumers for a while, and
//! the member extends that until the message is settled.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

/// SQS hides a message for at most this long after it was received, however often the timeout is extended.
const MAX_VISIBILITY: Duration = Duration::from_secs(12 * 3600);

#[derive(Debug)]
pub(crate) struct Visibility {
    timeout: Duration,
    last_number: u64,
    received: HashMap<u64, Received>,
    /// Given back for longer than SQS can hide them, by SQS's message id: delivered again no earlier.
    postponed: HashMap<String, Instant>,
}

/// A message that SQS considers received, until SQS has confirmed how it was settled.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) receipt_handle: String,
    message_id: String,
    received_at: Instant,
    /// SQS hides the message from others until then.
    pub(crate) hidden_until: Instant,
    /// A request to extend the timeout is in flight.
    pub(crate) is_extending: bool,
    /// How it was settled while that request was in flight. Sent afterwards, since SQS may process two requests in
    /// either order.
    pub(crate) deferred: Option<Settlement>,
    /// Settled, or lost to other consumers: the timeout is not extended again.
    pub(crate) is_settled: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settlement {
    Delete,
    /// Visible to others after this many seconds.
    Release(i32),
}

impl Visibility {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { timeout, last_number: 0, received: HashMap::new(), postponed: HashMap::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.received.len()
    }

    /// Adds a message received by a call that was made at `asked`, and returns its number.
    pub(crate) fn add(&mut self, receipt_handle: String, message_id: String, asked: Instant) -> u64 {
        self.last_number += 1;
        let received = Received {
            receipt_handle,
            message_id,
            received_at: asked,
            hidden_until: asked + self.timeout,
            is_extending: false,
            deferred: None,
            is_settled: false,
        };
        self.received.insert(self.last_number, received);
        self.last_number
    }

    pub(crate) fn get(&mut self, number: u64) -> Option<&mut Received> {
        self.received.get_mut(&number)
    }

    pub(crate) fn remove(&mut self, number: u64) {
        self.received.remove(&number);
    }

    /// Returns the messages whose timeout must be extended now, with their receipt handles: a third of it has passed.
    /// Marks them as being extended.
    pub(crate) fn extend(&mut self, now: Instant) -> Vec<(u64, String)> {
        let left = self.timeout * 2 / 3;
        let needs_time =
            |message: &Received| !message.is_settled && !message.is_extending && message.hidden_until <= now + left;
        let due = self.received.iter_mut().filter(|(_, message)| needs_time(message));
        let marked = due.map(|(number, message)| {
            message.is_extending = true;
            (*number, message.receipt_handle.clone())
        });
        marked.collect()
    }

    /// How to release a message for `delay`: in whole seconds, rounded up, and not beyond the longest visibility
    /// timeout. The rest of a longer delay is remembered.
    pub(crate) fn release(&mut self, number: u64, delay: Duration, now: Instant) -> Settlement {
        let Some(message) = self.received.get(&number) else { return Settlement::Release(0) };
        let seconds = |time: Duration| time.as_secs() + u64::from(time.subsec_nanos() > 0);
        let most = MAX_VISIBILITY.as_secs().saturating_sub(seconds(now - message.received_at));
        let wanted = seconds(delay);
        if wanted > most
            && let Some(due) = now.checked_add(delay)
        {
            self.postponed.insert(message.message_id.clone(), due);
        }
        Settlement::Release(i32::try_from(wanted.min(most)).unwrap_or(0))
    }

    /// How much longer a message that was just received must wait; `None` if it may be delivered.
    pub(crate) fn remaining_delay(&mut self, number: u64, now: Instant) -> Option<Duration> {
        let message_id = &self.received.get(&number)?.message_id;
        let due = *self.postponed.get(message_id)?;
        if due > now {
            return Some(due - now);
        }
        self.postponed.remove(message_id);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(30);

    fn hours(hours: u64) -> Duration {
        Duration::from_secs(3600 * hours)
    }

    #[test]
    fn a_timeout_is_extended_once_a_third_of_it_has_passed() {
        let (mut visibility, now) = (Visibility::new(TIMEOUT), Instant::now());
        let number = visibility.add("receipt".into(), "id".into(), now);
        assert_eq!(visibility.extend(now + Duration::from_secs(9)), []);
        assert_eq!(visibility.extend(now + Duration::from_secs(10)), [(number, "receipt".to_owned())]);
        assert_eq!(visibility.extend(now + Duration::from_secs(11)), [], "one request at a time");
        let message = visibility.get(number).unwrap();
        (message.is_extending, message.is_settled) = (false, true);
        assert_eq!(visibility.extend(now + Duration::from_secs(12)), [], "the consumer has settled it");
    }

    #[test]
    fn a_delay_is_never_cut_short() {
        let (mut visibility, now) = (Visibility::new(TIMEOUT), Instant::now());
        let number = visibility.add("receipt".into(), "id".into(), now);
        for (delay, seconds) in [(0, 0), (400, 1), (1_000, 1), (1_001, 2)] {
            let released = visibility.release(number, Duration::from_millis(delay), now);
            assert_eq!(released, Settlement::Release(seconds));
        }
        assert_eq!(visibility.remaining_delay(number, now), None);
        // An hour has passed since it was received, so that eleven are left of the twelve.
        let later = now + hours(1);
        assert_eq!(visibility.release(number, hours(20), later), Settlement::Release(11 * 3600));
        visibility.remove(number);
        let again = visibility.add("other".into(), "id".into(), later + hours(11));
        assert_eq!(visibility.remaining_delay(again, later + hours(11)), Some(hours(9)));
        assert_eq!(visibility.remaining_delay(again, later + hours(20)), None);
    }
}
