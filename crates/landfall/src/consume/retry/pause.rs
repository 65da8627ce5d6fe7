//! Pauses between attempts.

use std::time::Duration;

use landfall_core::{Backoff, Error};
use tokio_util::sync::CancellationToken;

/// The delay after `failures` failures, from a backoff without a maximum number of attempts.
pub(crate) fn unbounded_delay(backoff: Backoff, failures: u32) -> Duration {
    let unbounded = Backoff { max_attempts: u32::MAX, ..backoff };
    unbounded.delay_after(failures, rand::random()).unwrap_or(backoff.cap)
}

/// Sleeps; returns `false` as soon as `stop` is cancelled.
pub(crate) async fn sleep_unless_stopped(pause: Duration, stop: &CancellationToken) -> bool {
    tokio::select! { () = tokio::time::sleep(pause) => true, () = stop.cancelled() => false }
}

/// Consecutive database errors, which cost no message an attempt.
#[derive(Debug)]
pub(crate) struct DatabaseBackoff {
    backoff: Backoff,
    errors: u32,
}

impl DatabaseBackoff {
    pub(crate) fn new(backoff: Backoff) -> Self {
        Self { backoff, errors: 0 }
    }

    pub(crate) fn reset(&mut self) {
        self.errors = 0;
    }

    /// Logs `error` and sleeps, longer each time; returns `false` when stopped.
    pub(crate) async fn sleep_after(&mut self, error: &Error, stop: &CancellationToken) -> bool {
        self.errors += 1;
        let pause = unbounded_delay(self.backoff, self.errors);
        tracing::warn!(%error, ?pause, "database unavailable, backing off");
        sleep_unless_stopped(pause, stop).await
    }
}
