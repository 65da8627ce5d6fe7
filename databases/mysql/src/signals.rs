//! Wake-ups inside this process. MySQL has no notifications for other processes: a relay elsewhere finds a commit by
//! polling, after a millisecond at first and less and less often while the outbox is empty.

use std::time::Duration;

use tokio::sync::Notify;

#[derive(Default)]
pub(crate) struct Signals(Notify);

impl Signals {
    /// Wakes every waiting relay and the next one to wait: a relay between its last poll and its wait must not miss it.
    pub(crate) fn wake(&self) {
        self.0.notify_waiters();
        self.0.notify_one();
    }

    pub(crate) async fn wait(&self, at_most: Duration) {
        // A timeout makes the relay poll, as a wake-up does.
        let _ = tokio::time::timeout(at_most, self.0.notified()).await;
    }
}
