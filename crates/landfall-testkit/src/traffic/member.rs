//! A consumer that may leave before the end.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// A consumer of some [`Traffic`](super::Traffic).
#[derive(Debug)]
pub struct Member {
    told: Arc<Notify>,
    task: AbortHandle,
}

impl Member {
    pub(super) fn new(told: Arc<Notify>, task: AbortHandle) -> Self {
        Self { told, task }
    }

    /// It finishes what it has in hand and leaves its group.
    pub async fn leave(self) {
        self.told.notify_one();
        let has_left = async || self.task.is_finished();
        crate::eventually(Duration::from_secs(60), "a consumer leaves its group", has_left).await;
    }

    /// It is gone without a word.
    pub fn vanish(self) {
        self.task.abort();
    }
}
