use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Limits reconnects. A caller that writes in read-only transactions would otherwise force all connections to reopen
/// continuously.
const AT_MOST_EVERY: Duration = Duration::from_secs(10);

/// The time before which pooled connections must not be reused.
///
/// After a failover, a connection to the old primary still answers but rejects writes. A caller that gets it from the
/// pool fails and returns it, and so does the next. Connections opened before such a failure are therefore not reused.
#[derive(Debug, Default)]
pub struct ConnectionEpoch(Mutex<Option<Instant>>);

impl ConnectionEpoch {
    /// A connection rejected a write: starts a new epoch, at most once per [`AT_MOST_EVERY`].
    pub fn lose(&self) {
        let mut lost = self.lost();
        if lost.is_none_or(|lost| lost.elapsed() > AT_MOST_EVERY) {
            *lost = Some(Instant::now());
        }
    }

    /// Starts a new epoch at once: the state of the connections that are open now is unknown.
    pub fn lose_all(&self) {
        *self.lost() = Some(Instant::now());
    }

    /// Returns whether a connection of this age was opened in the current epoch.
    pub fn covers(&self, age: Duration) -> bool {
        self.lost().is_none_or(|lost| lost.elapsed() > age)
    }

    fn lost(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_opened_before_a_failure_is_not_reused() {
        let (trust, hour) = (ConnectionEpoch::default(), Duration::from_secs(3600));
        assert!(trust.covers(Duration::ZERO) && trust.covers(hour));
        trust.lose();
        assert!(!trust.covers(hour));
        while trust.lost().is_some_and(|lost| lost.elapsed().is_zero()) {}
        assert!(trust.covers(Duration::ZERO));
    }

    #[test]
    fn newer_connection_is_reused_despite_another_failure() {
        let trust = ConnectionEpoch(Mutex::new(Instant::now().checked_sub(Duration::from_secs(2))));
        let since = Duration::from_secs(1);
        trust.lose();
        assert!(trust.covers(since));
        trust.lose_all();
        assert!(!trust.covers(since));
    }
}
