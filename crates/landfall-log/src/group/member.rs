//! A subscriber's membership in its group.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::group::progress::{Assigned, Group};

/// A membership in a group; dropping it leaves the group.
#[derive(Debug)]
pub(crate) struct Member {
    id: u64,
    group: Arc<Group>,
    changes: watch::Receiver<()>,
}

impl Member {
    pub(crate) fn join(group: Arc<Group>) -> Self {
        let mut changes = group.changes();
        // A new member has not seen its own assignment yet.
        changes.mark_changed();
        Self { id: group.join(), group, changes }
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Counts the member as waiting for a delivery, and so as alive, until the returned guard is dropped.
    pub(crate) fn wait(&self) -> WaitGuard {
        self.group.begin_waiting(self.id);
        WaitGuard { id: self.id, group: Arc::clone(&self.group) }
    }

    /// Moves the partitions of members whose session timed out to the others.
    pub(crate) fn expire_sessions(&self) {
        self.group.expire_sessions(self.id);
    }

    /// The earliest time at which the session of another member may time out.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.group.deadline(self.id)
    }

    /// Whether partitions may have moved since they were last read.
    pub(crate) fn has_changed(&self) -> bool {
        self.changes.has_changed().unwrap_or_default()
    }

    /// Waits until partitions may have moved.
    pub(crate) async fn changed(&mut self) {
        // The sender lives as long as the group, and so as long as this member.
        let _ = self.changes.changed().await;
        self.changes.mark_changed();
    }

    /// Returns the partitions that this member owns now; `starts` holds the first offset of each partition of the
    /// topic.
    pub(crate) fn partitions(&mut self, starts: &[u64]) -> Vec<Assigned> {
        // Mark as seen before reading, so that a move in between is not missed.
        self.changes.mark_unchanged();
        self.group.partitions_of(self.id, starts)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.group.leave(self.id);
    }
}

/// Marks a call of `next` in progress.
#[derive(Debug)]
pub(crate) struct WaitGuard {
    id: u64,
    group: Arc<Group>,
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        self.group.end_waiting(self.id);
    }
}
