use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Limits how often a caller that writes in read-only transactions makes the pool reconnect.
const MIN_INTERVAL: Duration = Duration::from_secs(10);

/// Decides which connections of a pool may be used again after a failover.
///
/// A connection to the former primary still answers, but refuses writes. Every caller that gets it from the pool fails
/// and returns it. So connections that were opened before such a failure are not used again.
#[derive(Debug, Default)]
pub struct ConnectionEpoch(Mutex<Option<Instant>>);

impl ConnectionEpoch {
    /// Retires the connections that are open now, because one of them refused a write. At most once in ten seconds.
    pub fn retire(&self) {
        let mut retired = self.retired();
        if retired.is_none_or(|retired| retired.elapsed() > MIN_INTERVAL) {
            *retired = Some(Instant::now());
        }
    }

    /// Retires the connections that are open now, because the state of one of them is unknown.
    pub fn retire_all(&self) {
        *self.retired() = Some(Instant::now());
    }

    /// Returns whether a connection of this age was opened after the last retirement.
    pub fn is_current(&self, age: Duration) -> bool {
        self.retired().is_none_or(|retired| retired.elapsed() > age)
    }

    fn retired(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_connections_are_retired() {
        let (epoch, hour) = (ConnectionEpoch::default(), Duration::from_secs(3600));
        assert!(epoch.is_current(Duration::ZERO) && epoch.is_current(hour));
        epoch.retire();
        assert!(!epoch.is_current(hour));
        while epoch.retired().is_some_and(|retired| retired.elapsed().is_zero()) {}
        assert!(epoch.is_current(Duration::ZERO));
    }

    #[test]
    fn newer_connections_survive_another_failure_within_the_interval() {
        let epoch = ConnectionEpoch(Mutex::new(Instant::now().checked_sub(Duration::from_secs(2))));
        let since = Duration::from_secs(1);
        epoch.retire();
        assert!(epoch.is_current(since));
        epoch.retire_all();
        assert!(!epoch.is_current(since));
    }
}
