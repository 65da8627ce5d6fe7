//! Redriven dead letters that failed and wait for their next attempt.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use landfall_core::DeadLetterId;
use landfall_core::adapter::RedriveItem;

use crate::consume::AttemptCount;

/// The attempts of each dead letter since it was redriven, and the end of its backoff. Kept in memory: after a restart
/// the count starts again.
#[derive(Debug, Default)]
pub(super) struct BackingOff(Mutex<HashMap<DeadLetterId, (AttemptCount, Instant)>>);

impl BackingOff {
    /// The dead letters in backoff now.
    pub(super) fn current(&self) -> Vec<DeadLetterId> {
        let now = Instant::now();
        self.lock().iter().filter(|(_, (_, until))| *until > now).map(|(id, _)| *id).collect()
    }

    pub(super) fn contains(&self, id: DeadLetterId) -> bool {
        self.lock().get(&id).is_some_and(|(_, until)| *until > Instant::now())
    }

    /// The time until the next backoff ends.
    pub(super) fn shortest(&self) -> Option<Duration> {
        let now = Instant::now();
        self.lock()
            .values()
            .map(|(_, until)| until.saturating_duration_since(now))
            .filter(|pause| !pause.is_zero())
            .min()
    }

    /// The attempts of a dead letter. A manual redrive grants all attempts again.
    pub(super) fn count(&self, item: &RedriveItem) -> AttemptCount {
        let initial = AttemptCount::from_failures(if item.redrives == 0 { item.attempts } else { 0 });
        self.lock().get(&item.id).map_or(initial, |(count, _)| *count)
    }

    pub(super) fn insert(&self, id: DeadLetterId, count: AttemptCount, pause: Duration) {
        self.lock().insert(id, (count, Instant::now() + pause));
    }

    pub(super) fn remove(&self, id: DeadLetterId) {
        self.lock().remove(&id);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<DeadLetterId, (AttemptCount, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
