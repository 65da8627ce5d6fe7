//! Who shares the partitions of a topic within a group, inside one process.
//!
//! Each partition belongs to one member, so that a key stays in order. When somebody joins or leaves, partitions move
//! at once: what a member had not finished of a partition it lost is delivered again to the new owner. A member
//! beyond the number of partitions gets nothing and stands by.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

/// The members of a group on a topic, in the order in which they joined.
#[derive(Debug, Default)]
pub(crate) struct Members {
    present: watch::Sender<Vec<u64>>,
    next_id: AtomicU64,
}

impl Members {
    pub(crate) fn join(self: &Arc<Self>) -> Member {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.present.send_modify(|present| present.push(id));
        let mut seen = self.present.subscribe();
        // A member has yet to learn of its own partitions.
        seen.mark_changed();
        Member { id, members: Arc::clone(self), seen }
    }

    /// Lets every member look again.
    pub(crate) fn wake(&self) {
        self.present.send_modify(|_| {});
    }
}

/// A place in a group, given up when it is dropped.
#[derive(Debug)]
pub(crate) struct Member {
    id: u64,
    members: Arc<Members>,
    seen: watch::Receiver<Vec<u64>>,
}

impl Member {
    /// Whether partitions may have moved since they were last asked for.
    pub(crate) fn has_changed(&self) -> bool {
        self.seen.has_changed().unwrap_or_default()
    }

    /// Waits until partitions may have moved.
    pub(crate) async fn changed(&mut self) {
        // The sender lives as long as this member.
        let _ = self.seen.changed().await;
        self.seen.mark_changed();
    }

    /// Those of `count` partitions that belong to this member now.
    pub(crate) fn partitions(&mut self, count: u32) -> Vec<u32> {
        let present = self.seen.borrow_and_update();
        let place = present.iter().position(|id| *id == self.id);
        (0..count).filter(|partition| place == Some(*partition as usize % present.len())).collect()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.members.present.send_modify(|present| present.retain(|id| *id != self.id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_partition_belongs_to_exactly_one_member_whoever_comes_and_goes() {
        let members = Arc::new(Members::default());
        let mut present: Vec<Member> = Vec::new();
        for step in 0..40 {
            if step % 3 == 2 {
                drop(present.remove(step % present.len()));
            } else {
                present.push(members.join());
            }
            assert!(present.iter().all(Member::has_changed));
            let mut owned: Vec<u32> = present.iter_mut().flat_map(|member| member.partitions(7)).collect();
            owned.sort_unstable();
            assert_eq!(owned, (0..7).collect::<Vec<_>>());
            assert!(!present.iter().any(Member::has_changed));
        }
    }
}
