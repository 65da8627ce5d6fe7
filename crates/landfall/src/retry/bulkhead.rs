//! A bulkhead: bounds the calls in progress and the callers waiting, so that a slow dependency cannot exhaust the
//! service.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

#[derive(Debug)]
pub(super) struct Bulkhead {
    permits: Semaphore,
    size: usize,
    waiting: AtomicUsize,
    max_waiting: usize,
    max_wait: Duration,
}

impl Bulkhead {
    /// `size` is at most [`Semaphore::MAX_PERMITS`]; the options are checked.
    pub(super) fn new(size: usize, max_waiting: usize, max_wait: Duration) -> Self {
        Self { permits: Semaphore::new(size), size, waiting: AtomicUsize::new(0), max_waiting, max_wait }
    }

    /// Waits for a permit. `None` if too many callers wait already, or the wait takes too long.
    pub(super) async fn enter(&self) -> Option<SemaphorePermit<'_>> {
        if let Ok(permit) = self.permits.try_acquire() {
            return Some(permit);
        }
        let _waiting = Waiting::enter(self)?;
        tokio::time::timeout(self.max_wait, self.permits.acquire()).await.ok()?.ok()
    }

    pub(super) fn running(&self) -> usize {
        self.size - self.permits.available_permits()
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

/// One waiting caller; uncounted on drop, so also when the caller is cancelled.
struct Waiting<'a>(&'a Bulkhead);

impl<'a> Waiting<'a> {
    fn enter(bulkhead: &'a Bulkhead) -> Option<Self> {
        let max = bulkhead.max_waiting;
        let one_more = |waiting| (waiting < max).then_some(waiting + 1);
        bulkhead.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok().map(|_| Self(bulkhead))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
