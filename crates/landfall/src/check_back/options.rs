//! The limits of a coordinator.

use std::time::Duration;

use landfall_core::{Backoff, Error, Result};

/// How a coordinator asks, and when it gives up.
///
/// ```
/// use std::time::Duration;
///
/// use landfall::check_back::Options;
///
/// let options = Options { timeout: Duration::from_secs(2), ..Options::default() };
/// assert_eq!(options.backoff.max_attempts, 15);
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    /// The pause between two looks for due messages, while none is due.
    pub interval: Duration,
    /// How long one target may take to answer.
    pub timeout: Duration,
    /// Check-backs in flight.
    pub concurrency: usize,
    /// Pauses between the check-backs of one message. After `max_attempts` of them it is parked.
    pub backoff: Backoff,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(5),
            concurrency: 16,
            backoff: Backoff { first: Duration::from_secs(5), cap: Duration::from_secs(600), max_attempts: 15 },
        }
    }
}

impl Options {
    /// Refuses values with which the coordinator could not work.
    pub(super) fn check(&self) -> Result<()> {
        let refused = |problem: &str| Err(Error::invalid(format!("check-back option {problem}")));
        if self.interval.is_zero() {
            return refused("interval is zero; an idle coordinator would poll without a pause");
        }
        if self.timeout.is_zero() {
            return refused("timeout is zero; no target could answer in time");
        }
        if self.concurrency == 0 {
            return refused("concurrency is 0; it must be at least 1");
        }
        if self.backoff.max_attempts == 0 {
            return refused("backoff.max_attempts is 0; it must be at least 1");
        }
        Ok(())
    }

    /// How long a claim lasts: a check-back asks at most three targets and then writes the result.
    pub(super) fn lease(&self) -> Duration {
        3 * self.timeout + Duration::from_secs(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_out_of_range_are_refused_by_name() {
        let default = Options::default;
        default().check().unwrap();
        let never = Backoff { max_attempts: 0, ..default().backoff };
        for (options, name) in [
            (Options { interval: Duration::ZERO, ..default() }, "interval"),
            (Options { timeout: Duration::ZERO, ..default() }, "timeout"),
            (Options { concurrency: 0, ..default() }, "concurrency"),
            (Options { backoff: never, ..default() }, "backoff.max_attempts"),
        ] {
            let error = options.check().unwrap_err().to_string();
            assert!(error.contains(&format!("check-back option {name} ")), "{error}");
        }
    }
}
