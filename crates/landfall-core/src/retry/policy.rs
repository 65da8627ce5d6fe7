//! Retry delays: backoff, jitter, deadline and `Retry-After`.

use std::time::Duration;

use crate::Backoff;

/// A [`Backoff`] with jitter, an overall deadline and support for `Retry-After`.
///
/// Pure: the caller supplies the random number and the elapsed time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    pub backoff: Backoff,
    pub jitter: Jitter,
    /// No attempt starts later than this after the start of the first, however many are left.
    pub deadline: Option<Duration>,
    /// The longest `Retry-After` that is honoured; a longer one is capped. One header must not delay a message for a
    /// year.
    pub retry_after_cap: Duration,
}

/// How a delay is randomised, so that clients that failed together do not return together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Jitter {
    /// Between half of the delay and all of it: a failing dependency always gets time to recover.
    #[default]
    Half,
    /// Between zero and all of it: the widest spread.
    Full,
    /// Between the first delay and three times the previous one: as wide, without the steps of doubling.
    Decorrelated,
}

/// A failed attempt, as input to [`RetryPolicy::delay_after`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Failed {
    /// Attempts so far, including this one.
    pub attempts: u32,
    /// Time since the first attempt started.
    pub elapsed: Duration,
    /// The delay before this attempt. Without it [`Jitter::Decorrelated`] assumes the longest possible one.
    pub previous: Option<Duration>,
    /// The dependency's `Retry-After`.
    pub retry_after: Option<Duration>,
}

impl RetryPolicy {
    /// Returns the delay before the next attempt. `None` if that was the last one, or the next would start after the
    /// deadline. At least `retry_after`, up to `retry_after_cap`.
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

    /// Returns the longest possible sum of all delays, from the first failure to the last.
    pub fn longest(&self) -> Duration {
        let delays = self.backoff.max_attempts.saturating_sub(1);
        let mut sum = Duration::ZERO;
        for done in 0..delays {
            let delay = self.ceiling(done + 1).max(self.retry_after_cap);
            if done > 32 {
                // Every further delay is the same.
                sum = sum.saturating_add(delay.saturating_mul(delays - done));
                break;
            }
            sum = sum.saturating_add(delay);
        }
        self.deadline.map_or(sum, |deadline| sum.min(deadline))
    }

    /// Returns the policy without maximum and deadline, for waits that do not count as attempts.
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

    /// Returns the longest delay after attempt number `attempts`, apart from `Retry-After`.
    fn ceiling(&self, attempts: u32) -> Duration {
        let steps = attempts.saturating_sub(1).min(31);
        let full = match self.jitter {
            Jitter::Half | Jitter::Full => self.backoff.first.saturating_mul(1 << steps),
            Jitter::Decorrelated => self.backoff.first.saturating_mul(3_u32.saturating_pow(steps + 1)),
        };
        full.min(self.backoff.cap)
    }
}

/// Half jitter, no deadline, `Retry-After` up to five minutes.
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
    fn retry_after_is_honoured_up_to_its_cap() {
        let policy = RetryPolicy { retry_after_cap: Duration::from_secs(60), ..policy(Jitter::Full) };
        let asked = |seconds| Failed { retry_after: Some(Duration::from_secs(seconds)), ..failed(1) };
        assert_eq!(policy.delay_after(asked(7), 0.5), Some(Duration::from_secs(7)));
        assert_eq!(policy.delay_after(asked(31_536_000), 0.5), Some(Duration::from_secs(60)));
        assert_eq!(policy.delay_after(asked(0), 1.0), Some(MILLI * 100));
    }

    #[test]
    fn deadline_overrides_the_count() {
        let policy = RetryPolicy { deadline: Some(Duration::from_secs(2)), ..policy(Jitter::Half) };
        assert_eq!(policy.delay_after(Failed { elapsed: MILLI * 1900, ..failed(1) }, 1.0), Some(MILLI * 100));
        assert_eq!(policy.delay_after(Failed { elapsed: MILLI * 1901, ..failed(1) }, 1.0), None);
        assert_eq!(policy.delay_after(failed(6), 1.0), None);
    }
}
