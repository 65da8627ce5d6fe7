//! How often one message has failed, and how long to leave it alone.

use std::time::Duration;

use landfall_core::{Backoff, Failure, Verdict};

/// What is counted between the first try of a message and its last.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tally {
    /// Tries that count against the maximum.
    pub(super) failures: u32,
    /// All tries that were really made: also those for which the message is not to blame.
    pub(super) tries: u32,
    /// Tries that did not count, since the last one that did: something the message needs was out of order.
    waits: u32,
}

/// The longest `Retry-After` that is followed: nobody puts a message off for a year.
pub(super) const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(3600);

impl Tally {
    /// That of a message which has failed so often elsewhere.
    pub(super) fn after(failures: u32) -> Self {
        Self { failures, tries: failures, waits: 0 }
    }

    /// Counts `failure`; the time until the next try, or `None` if there is to be none. Never sooner than whoever
    /// refused it asked for.
    pub(super) fn pause_after(&mut self, failure: &Failure, backoff: Backoff) -> Option<Duration> {
        let pause = match failure.verdict {
            Verdict::Wait => {
                self.waits += 1;
                Some(endless(backoff, self.waits))
            }
            _ if !failure.spends_attempt() => {
                (self.tries, self.waits) = (self.tries + 1, self.waits + 1);
                Some(endless(backoff, self.waits))
            }
            verdict => {
                (self.failures, self.tries, self.waits) = (self.failures + 1, self.tries + 1, 0);
                backoff.delay_after(self.failures, rand::random()).filter(|_| verdict == Verdict::Retry)
            }
        };
        let asked = failure.retry_after.unwrap_or_default().min(LONGEST_RETRY_AFTER);
        pause.map(|pause| pause.max(asked))
    }
}

/// The delay of a backoff that never ends.
pub(super) fn endless(backoff: Backoff, times: u32) -> Duration {
    let endless = Backoff { max_attempts: u32::MAX, ..backoff };
    endless.delay_after(times, rand::random()).unwrap_or(backoff.cap)
}

#[cfg(test)]
mod tests {
    use landfall_core::ErrorCode;

    use super::*;

    const BACKOFF: Backoff =
        Backoff { first: Duration::from_millis(10), cap: Duration::from_millis(100), max_attempts: 3 };

    #[test]
    fn waiting_spends_no_attempt_and_the_third_failure_is_the_last() {
        let (mut tally, wait) = (Tally::default(), Failure::wait(ErrorCode::new("closed"), "the breaker is open"));
        assert!(tally.pause_after(&Failure::retry("no"), BACKOFF).is_some());
        for _ in 0..1000 {
            let pause = tally.pause_after(&wait, BACKOFF).unwrap();
            assert!(pause <= BACKOFF.cap && pause >= BACKOFF.first / 2, "{pause:?}");
        }
        assert_eq!(tally.failures, 1);
        assert!(tally.pause_after(&Failure::retry("no"), BACKOFF).is_some());
        assert!(tally.pause_after(&Failure::retry("no"), BACKOFF).is_none());
    }

    #[test]
    fn a_dependency_that_cannot_be_reached_spends_no_attempt_however_often_it_is_tried() {
        let (mut tally, down) = (Tally::default(), Failure::retry("refused").with_code(ErrorCode::DEPENDENCY));
        for _ in 0..1000 {
            assert!(tally.pause_after(&down, BACKOFF).is_some_and(|pause| pause <= BACKOFF.cap));
        }
        assert_eq!((tally.failures, tally.tries), (0, 1000), "but each of them is a retry that the budget pays for");
        // What the message itself may be to blame for still counts.
        let ends = [(); 3].map(|()| tally.pause_after(&Failure::retry("no"), BACKOFF).is_none());
        assert_eq!(ends, [false, false, true]);
    }

    #[test]
    fn who_asks_for_a_longer_pause_gets_it_and_parking_is_at_once() {
        let mut tally = Tally::default();
        let busy = Failure::retry("busy").after(Duration::from_secs(7));
        assert_eq!(tally.pause_after(&busy, BACKOFF), Some(Duration::from_secs(7)));
        let year = Failure::retry("busy").after(Duration::from_secs(365 * 24 * 3600));
        assert_eq!(tally.pause_after(&year, BACKOFF), Some(LONGEST_RETRY_AFTER), "within reason");
        let park = Failure::park(ErrorCode::VALIDATION, "never").after(Duration::from_secs(7));
        assert_eq!((tally.pause_after(&park, BACKOFF), tally.failures), (None, 3));
    }
}
