//! The limits of a runner.

use std::time::Duration;

use landfall_core::{Error, RedriveGuards, Result, StopRule};

/// How often a runner works, and which letters it leaves alone.
///
/// ```
/// use landfall::redrive::Options;
///
/// let options = Options::default();
/// assert_eq!(options.stop.failed_percent, 5);
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    /// The pause between two looks while no job is active.
    pub interval: Duration,
    /// The pause between two looks while a job is active.
    pub pace: Duration,
    /// How long a runner that was killed keeps others from its jobs.
    pub lease: Duration,
    pub guards: RedriveGuards,
    pub stop: StopRule,
    /// How long a job is kept after it ended; `None` keeps it forever.
    pub keep: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            interval: Duration::from_millis(500),
            pace: Duration::from_millis(50),
            lease: Duration::from_secs(5),
            guards: RedriveGuards::default(),
            stop: StopRule::default(),
            keep: None,
        }
    }
}

impl Options {
    /// Refuses values with which the runner could not work.
    pub(super) fn check(&self) -> Result<()> {
        let refused = |problem: &str| Err(Error::invalid(format!("redrive option {problem}")));
        if self.interval.is_zero() || self.pace.is_zero() {
            return refused("interval or pace is zero; the runner would poll without a pause");
        }
        if self.lease < Duration::from_millis(100) {
            return refused("lease is below 100 ms; the runner would lose it between two looks");
        }
        if self.guards.max_redrives == 0 {
            return refused("guards.max_redrives is 0; no letter could be redriven");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_out_of_range_are_refused_by_name() {
        let default = Options::default;
        default().check().unwrap();
        let guards = RedriveGuards { max_redrives: 0, ..RedriveGuards::default() };
        for (options, name) in [
            (Options { interval: Duration::ZERO, ..default() }, "interval"),
            (Options { lease: Duration::ZERO, ..default() }, "lease"),
            (Options { guards, ..default() }, "guards.max_redrives"),
        ] {
            let error = options.check().unwrap_err().to_string();
            assert!(error.contains(&format!("redrive option {name} ")), "{error}");
        }
    }
}
