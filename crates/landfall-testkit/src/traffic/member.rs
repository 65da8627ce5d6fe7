//! A handle to stop one consumer before the end.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// A consumer of some [`Traffic`](super::Traffic).
#[derive(Debug)]
pub struct Member {
    leave: Arc<Notify>,
    task: AbortHandle,
}

impl Member {
    pub(super) fn new(leave: Arc<Notify>, task: AbortHandle) -> Self {
        Self { leave, task }
    }

    /// Completes pending acknowledgements and leaves the group.
    pub async fn leave(self) {
        self.leave.notify_one();
        let has_left = async || self.task.is_finished();
        crate::eventually(Duration::from_secs(60), "a consumer leaves its group", has_left).await;
    }

    /// Aborts the consumer without leaving the group.
    pub fn kill(self) {
        self.task.abort();
    }
}
