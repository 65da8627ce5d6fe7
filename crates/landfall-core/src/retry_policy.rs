//! When to try again: how long to wait, spread by chance, and when to stop.

use std::time::Duration;

use crate::Backoff;

/// A [`Backoff`] with a choice of how it is spread, a deadline that beats the count, and an ear for `Retry-After`.
///
/// Pure: the caller brings the random number and says how much time has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    pub backoff: Backoff,
    pub jitter: Jitter,
    /// From the beginning of the first try: no try begins later than this, however many are left.
    pub deadline: Option<Duration>,
    /// The longest `Retry-After` that is followed; a longer one is cut to this. Nobody should be able to put a message
    /// off for a year with one header.
    pub retry_after_cap: Duration,
}

/// How chance spreads a delay, so that those who failed together do not come back together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Jitter {
    /// Between half of the delay and all of it: a failing dependency is left alone for a while in any case.
    #[default]
    Half,
    /// Between nothing and all of it: the widest spread, and the fewest calls at the same moment.
    Full,
    /// Between the first delay and three times the last one: as wide, and without the steps that doubling leaves.
    Decorrelated,
}

/// What is known when a try has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Failed {
    /// Tries so far, this one included.
    pub attempts: u32,
    /// Since the first try began.
    pub elapsed: Duration,
    /// The delay before this try. Without it [`Jitter::Decorrelated`] supposes the longest there can have been.
    pub previous: Option<Duration>,
    /// What the dependency asked for.
    pub retry_after: Option<Duration>,
}

impl RetryPolicy {
    /// The delay before the next try, or `None` if there is to be none: that was the last one, or the next would begin
    /// past the deadline. Never shorter than what the dependency asked for, as far as `retry_after_cap` allows.
    ///
    /// `random` is in `0.0..1.0`.
    pub fn delay_after(&self, failed: Failed, random: f64) -> Option<Duration> {
        if failed.attempts >= self.backoff.max_attempts {
            return None;
        }
        let asked = failed.retry_after.unwrap_or_default().min(self.retry_after_cap);
        let delay = self.spread(failed.attempts, failed.previous, random.clamp(0.0, 1.0)).max(asked);
        let in_time = self.deadline.is_none_or(|deadline| failed.elapsed.saturating_add(delay) <= deadline);
        in_time.then_some(delay)
    }

    /// The longest that all delays together can be: from the first failure to the last one.
    pub fn longest(&self) -> Duration {
        let delays = self.backoff.max_attempts.saturating_sub(1);
        let mut sum = Duration::ZERO;
        for done in 0..delays {
            let delay = self.ceiling(done + 1).max(self.retry_after_cap);
            if done > 32 {
                // From here on every delay is the same.
                sum = sum.saturating_add(delay.saturating_mul(delays - done));
                break;
            }
            sum = sum.saturating_add(delay);
        }
        self.deadline.map_or(sum, |deadline| sum.min(deadline))
    }

    /// The same delays without an end, for waiting that is nobody's fault.
    #[must_use]
    pub fn endless(self) -> Self {
        Self { backoff: Backoff { max_attempts: u32::MAX, ..self.backoff }, deadline: None, ..self }
    }

    fn spread(&self, attempts: u32, previous: Option<Duration>, random: f64) -> Duration {
        let ceiling = self.ceiling(attempts);
        match self.jitter {
            Jitter::Half => ceiling.mul_f64(0.5 + 0.5 * random),
            Jitter::Full => ceiling.mul_f64(random),
            Jitter::Decorrelated => {
                let floor = self.backoff.first.min(self.backoff.cap);
                let upper = previous.map_or(ceiling, |delay| delay.saturating_mul(3).clamp(floor, ceiling.max(floor)));
                floor + (upper - floor).mul_f64(random)
            }
        }
    }

    /// The longest that the delay after the `attempts`-th try can be without anybody asking for more.
    fn ceiling(&self, attempts: u32) -> Duration {
        let steps = attempts.saturating_sub(1).min(31);
        let full = match self.jitter {
            Jitter::Half | Jitter::Full => self.backoff.first.saturating_mul(1 << steps),
            Jitter::Decorrelated => self.backoff.first.saturating_mul(3_u32.saturating_pow(steps + 1)),
        };
        full.min(self.backoff.cap)
    }
}

/// As a backoff has always been spread, without a deadline, and following up to five minutes of `Retry-After`.
impl From<Backoff> for RetryPolicy {
    fn from(backoff: Backoff) -> Self {
        Self { backoff, jitter: Jitter::Half, deadline: None, retry_after_cap: Duration::from_secs(300) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);
    const BACKOFF: Backoff =
        Backoff { first: MILLI.saturating_mul(100), cap: MILLI.saturating_mul(5000), max_attempts: 6 };

    fn policy(jitter: Jitter) -> RetryPolicy {
        RetryPolicy { jitter, retry_after_cap: Duration::ZERO, ..BACKOFF.into() }
    }

    fn failed(attempts: u32) -> Failed {
        Failed { attempts, ..Failed::default() }
    }

    #[test]
    fn each_jitter_has_its_own_range() {
        let range = |jitter, attempts| {
            [0.0, 1.0].map(|random| policy(jitter).delay_after(failed(attempts), random).unwrap().as_millis())
        };
        assert_eq!(range(Jitter::Half, 3), [200, 400]);
        assert_eq!(range(Jitter::Full, 3), [0, 400]);
        assert_eq!(range(Jitter::Decorrelated, 1), [100, 300]);
        assert_eq!(range(Jitter::Decorrelated, 3), [100, 2700]);
        let after_a_short_one = Failed { previous: Some(MILLI * 150), ..failed(3) };
        assert_eq!(policy(Jitter::Decorrelated).delay_after(after_a_short_one, 1.0), Some(MILLI * 450));
    }

    #[test]
    fn what_the_dependency_asks_for_is_followed_up_to_the_cap() {
        let policy = RetryPolicy { retry_after_cap: Duration::from_secs(60), ..policy(Jitter::Full) };
        let asked = |seconds| Failed { retry_after: Some(Duration::from_secs(seconds)), ..failed(1) };
        assert_eq!(policy.delay_after(asked(7), 0.5), Some(Duration::from_secs(7)));
        assert_eq!(policy.delay_after(asked(31_536_000), 0.5), Some(Duration::from_secs(60)));
        assert_eq!(policy.delay_after(asked(0), 1.0), Some(MILLI * 100));
    }

    #[test]
    fn the_deadline_beats_the_count() {
        let policy = RetryPolicy { deadline: Some(Duration::from_secs(2)), ..policy(Jitter::Half) };
        assert_eq!(policy.delay_after(Failed { elapsed: MILLI * 1900, ..failed(1) }, 1.0), Some(MILLI * 100));
        assert_eq!(policy.delay_after(Failed { elapsed: MILLI * 1901, ..failed(1) }, 1.0), None);
        assert_eq!(policy.delay_after(failed(6), 1.0), None);
    }
}
