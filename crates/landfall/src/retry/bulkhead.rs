//! So many calls at once and so many waiting: a slow dependency takes no more of the service than that.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

#[derive(Debug)]
pub(super) struct Bulkhead {
    places: Semaphore,
    size: usize,
    waiting: AtomicUsize,
    most_waiting: usize,
    longest_wait: Duration,
}

impl Bulkhead {
    pub(super) fn new(size: usize, most_waiting: usize, longest_wait: Duration) -> Self {
        let size = size.clamp(1, Semaphore::MAX_PERMITS);
        Self { places: Semaphore::new(size), size, waiting: AtomicUsize::new(0), most_waiting, longest_wait }
    }

    /// A place, as soon as there is one; `None` if too many are waiting already, or if it takes too long.
    pub(super) async fn enter(&self) -> Option<SemaphorePermit<'_>> {
        if let Ok(place) = self.places.try_acquire() {
            return Some(place);
        }
        let _turn = Turn::take(self)?;
        tokio::time::timeout(self.longest_wait, self.places.acquire()).await.ok()?.ok()
    }

    pub(super) fn running(&self) -> usize {
        self.size - self.places.available_permits()
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

/// A place in the queue, given back even if whoever waits is cancelled.
struct Turn<'a>(&'a Bulkhead);

impl<'a> Turn<'a> {
    fn take(bulkhead: &'a Bulkhead) -> Option<Self> {
        let most = bulkhead.most_waiting;
        let one_more = |waiting| (waiting < most).then_some(waiting + 1);
        bulkhead.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok().map(|_| Self(bulkhead))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
