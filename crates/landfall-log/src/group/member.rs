//! A subscriber's place in its group.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::group::progress::{Assigned, Group};

/// A place in a group, given up when it is dropped.
#[derive(Debug)]
pub(crate) struct Member {
    id: u64,
    group: Arc<Group>,
    changes: watch::Receiver<()>,
}

impl Member {
    pub(crate) fn join(group: Arc<Group>) -> Self {
        let mut changes = group.changes();
        // A member has yet to learn of its own partitions.
        changes.mark_changed();
        Self { id: group.join(), group, changes }
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Counts as waiting for a delivery, and so as alive, until the answer is dropped.
    pub(crate) fn wait(&self) -> Waiting {
        self.group.begin_waiting(self.id);
        Waiting { id: self.id, group: Arc::clone(&self.group) }
    }

    /// Takes their partitions from members that have fallen silent, in favour of the others.
    pub(crate) fn pass_over_silent(&self) {
        self.group.pass_over_silent(self.id);
    }

    /// When another member may have fallen silent.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.group.deadline(self.id)
    }

    /// Whether partitions may have moved since they were last asked for.
    pub(crate) fn has_changed(&self) -> bool {
        self.changes.has_changed().unwrap_or_default()
    }

    /// Waits until partitions may have moved.
    pub(crate) async fn changed(&mut self) {
        // The sender lives as long as the group, and so as long as this member.
        let _ = self.changes.changed().await;
        self.changes.mark_changed();
    }

    /// Those of the topic's partitions, which begin at `starts`, that belong to this member now.
    pub(crate) fn partitions(&mut self, starts: &[u64]) -> Vec<Assigned> {
        // Marked as seen before looking, so that what moves in between is not missed.
        self.changes.mark_unchanged();
        self.group.partitions_of(self.id, starts)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.group.leave(self.id);
    }
}

/// A call of `next` that is under way.
#[derive(Debug)]
pub(crate) struct Waiting {
    id: u64,
    group: Arc<Group>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.group.end_waiting(self.id);
    }
}
