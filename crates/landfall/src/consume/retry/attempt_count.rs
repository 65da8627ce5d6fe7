//! How often one message has failed, and how long to wait before its next attempt.

use std::time::Duration;

use landfall_core::{Backoff, Failure, Verdict};

use super::pause::unbounded_delay;

/// The attempts of one message, from its first to its last.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AttemptCount {
    /// Failures that count against the maximum.
    pub(crate) failures: u32,
    /// Every call of the handler, including those that failed because a dependency was down.
    pub(crate) calls: u32,
    /// Failures since the last counted one that do not count: something the message needs was unavailable.
    uncounted: u32,
}

/// The longest `Retry-After` that is honoured. A receiver must not defer a message for a year.
pub(crate) const MAX_RETRY_AFTER: Duration = Duration::from_secs(3600);

impl AttemptCount {
    /// The count of a message that failed this often before it was moved here.
    pub(crate) fn from_failures(failures: u32) -> Self {
        Self { failures, calls: failures, uncounted: 0 }
    }

    /// Counts `failure` and returns the pause before the next attempt, or `None` after the last one. The pause is never
    /// shorter than the failure's `retry_after`.
    pub(crate) fn pause_after(&mut self, failure: &Failure, backoff: Backoff) -> Option<Duration> {
        let pause = match failure.verdict {
            Verdict::Wait => {
                add_one(&mut self.uncounted);
                Some(unbounded_delay(backoff, self.uncounted))
            }
            _ if !failure.spends_attempt() => {
                add_one(&mut self.calls);
                add_one(&mut self.uncounted);
                Some(unbounded_delay(backoff, self.uncounted))
            }
            verdict => {
                add_one(&mut self.failures);
                add_one(&mut self.calls);
                self.uncounted = 0;
                backoff.delay_after(self.failures, rand::random()).filter(|_| verdict == Verdict::Retry)
            }
        };
        let retry_after = failure.retry_after.unwrap_or_default().min(MAX_RETRY_AFTER);
        pause.map(|pause| pause.max(retry_after))
    }
}

/// Saturates, because a count may come from a header that any producer can write.
fn add_one(count: &mut u32) {
    *count = count.saturating_add(1);
}

#[cfg(test)]
mod tests {
    use landfall_core::ErrorCode;

    use super::*;

    const BACKOFF: Backoff =
        Backoff { first: Duration::from_millis(10), cap: Duration::from_millis(100), max_attempts: 3 };

    #[test]
    fn waiting_is_not_counted_and_the_third_failure_is_the_last() {
        let (mut count, wait) = (AttemptCount::default(), Failure::wait(ErrorCode::new("closed"), "breaker open"));
        assert!(count.pause_after(&Failure::retry("no"), BACKOFF).is_some());
        for _ in 0..1000 {
            let pause = count.pause_after(&wait, BACKOFF).unwrap();
            assert!(pause <= BACKOFF.cap && pause >= BACKOFF.first / 2, "{pause:?}");
        }
        assert_eq!(count.failures, 1);
        assert!(count.pause_after(&Failure::retry("no"), BACKOFF).is_some());
        assert!(count.pause_after(&Failure::retry("no"), BACKOFF).is_none());
    }

    #[test]
    fn highest_count_stays_the_highest() {
        let mut count = AttemptCount::from_failures(u32::MAX);
        assert_eq!(count.pause_after(&Failure::retry("no"), BACKOFF), None);
        let down = Failure::retry("refused").with_code(ErrorCode::DEPENDENCY);
        assert!(count.pause_after(&down, BACKOFF).is_some());
        assert_eq!((count.failures, count.calls), (u32::MAX, u32::MAX));
    }

    #[test]
    fn unavailable_dependency_is_retried_without_limit() {
        let (mut count, down) = (AttemptCount::default(), Failure::retry("refused").with_code(ErrorCode::DEPENDENCY));
        for _ in 0..1000 {
            assert!(count.pause_after(&down, BACKOFF).is_some_and(|pause| pause <= BACKOFF.cap));
        }
        assert_eq!((count.failures, count.calls), (0, 1000), "each call is a retry that the budget pays for");
        // Failures that the message may have caused still count.
        let is_last = [(); 3].map(|()| count.pause_after(&Failure::retry("no"), BACKOFF).is_none());
        assert_eq!(is_last, [false, false, true]);
    }

    #[test]
    fn retry_after_is_honoured_up_to_a_limit_and_park_is_immediate() {
        let mut count = AttemptCount::default();
        let busy = Failure::retry("busy").after(Duration::from_secs(7));
        assert_eq!(count.pause_after(&busy, BACKOFF), Some(Duration::from_secs(7)));
        let year = Failure::retry("busy").after(Duration::from_secs(365 * 24 * 3600));
        assert_eq!(count.pause_after(&year, BACKOFF), Some(MAX_RETRY_AFTER));
        let park = Failure::park(ErrorCode::VALIDATION, "never").after(Duration::from_secs(7));
        assert_eq!((count.pause_after(&park, BACKOFF), count.failures), (None, 3));
    }
}
