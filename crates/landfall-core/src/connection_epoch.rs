use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A caller that begins transactions which only read, and writes in them, must not have everybody connect anew all the time.
const AT_MOST_EVERY: Duration = Duration::from_secs(10);

/// Which connections of a pool may be used again.
///
/// After a failover, a connection to the server that was the first before answers as ever, and takes no change: whoever gets it
/// from the pool fails, and gives it back. Nothing that was opened before such a failure is used again.
#[derive(Debug, Default)]
pub struct ConnectionEpoch(Mutex<Option<Instant>>);

impl ConnectionEpoch {
    /// A connection took no change.
    pub fn lose(&self) {
        let mut lost = self.lost();
        if lost.is_none_or(|lost| lost.elapsed() > AT_MOST_EVERY) {
            *lost = Some(Instant::now());
        }
    }

    /// Of one that is open now nobody knows what is left in it.
    pub fn lose_all(&self) {
        *self.lost() = Some(Instant::now());
    }

    /// Whether a connection of this age was opened after the last one that took no change.
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
    fn what_was_opened_before_a_failure_is_not_used_again() {
        let (trust, hour) = (ConnectionEpoch::default(), Duration::from_secs(3600));
        assert!(trust.covers(Duration::ZERO) && trust.covers(hour));
        trust.lose();
        assert!(!trust.covers(hour));
        while trust.lost().is_some_and(|lost| lost.elapsed().is_zero()) {}
        assert!(trust.covers(Duration::ZERO));
    }

    #[test]
    fn what_was_opened_since_is_used_though_it_fails_again_at_once() {
        let trust = ConnectionEpoch(Mutex::new(Instant::now().checked_sub(Duration::from_secs(2))));
        let since = Duration::from_secs(1);
        trust.lose();
        assert!(trust.covers(since));
        trust.lose_all();
        assert!(!trust.covers(since));
    }
}
