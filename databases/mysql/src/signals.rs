//! Wake-ups inside this process. MySQL has nothing that would carry them to another one: a relay elsewhere finds a commit
//! by looking again, which it does after a millisecond at first and more and more rarely while nothing comes.

use std::time::Duration;

use tokio::sync::Notify;

#[derive(Default)]
pub(crate) struct Signals(Notify);

impl Signals {
    /// Wakes everybody who waits, and whoever comes next: a relay between its last look and its wait must not miss it.
    pub(crate) fn wake(&self) {
        self.0.notify_waiters();
        self.0.notify_one();
    }

    pub(crate) async fn wait(&self, at_most: Duration) {
        // Running out of time is as good a reason to look as a wake-up.
        let _ = tokio::time::timeout(at_most, self.0.notified()).await;
    }
}
