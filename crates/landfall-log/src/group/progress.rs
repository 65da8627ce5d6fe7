//! One group on one topic: its members, the owner of each partition, and its progress in each.
//!
//! Each partition has one owner, so that a key stays in order. When a member joins, leaves or times out, partitions
//! move at once: unfinished messages of a lost partition are redelivered to the new owner. With more members than
//! partitions, the surplus members stay idle.
//!
//! Whenever a partition changes owner or is sought, it gets a new **generation**. An acknowledgement names the
//! generation in which its message was delivered and is valid only in that one: a previous owner cannot advance the
//! partition.
//!
//! One offset per partition is saved. While the log is open, more is known: which messages beyond the first gap are
//! finished. So a partition that moves keeps its unfinished set, and no acknowledged message is redelivered.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use landfall_core::{Error, ErrorKind, GroupName, Result, TopicName};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::disk::Disk;
use crate::durable;
use crate::group::assignment::balance;
use crate::group::file::GroupFile;
use crate::group::members::Members;
use crate::group::partition_progress::{DeliveryDecision, PartitionProgress};

#[derive(Debug)]
pub(crate) struct Group {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    name: GroupName,
    topic: TopicName,
    state: Mutex<State>,
    /// Locked while the file is being written.
    saving: Mutex<()>,
    /// Notified whenever partitions have moved.
    changes: watch::Sender<()>,
}

#[derive(Debug)]
struct State {
    members: Members,
    /// As many as were assigned or had progress.
    partitions: Vec<PartitionProgress>,
    /// The last generation that was issued.
    generation: u64,
    /// It has progress or was sought, and so has a file.
    is_known: bool,
    is_unsaved: bool,
    /// The topic was deleted: ignore all progress and write nothing.
    is_discarded: bool,
}

/// A partition that a member owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Assigned {
    pub(crate) partition: u32,
    pub(crate) generation: u64,
    /// Everything below is finished.
    pub(crate) finished: u64,
}

/// The result of finishing a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FinishResult {
    /// Ignored: the partition is in another generation.
    Fenced,
    Recorded,
    /// Recorded, and the caller must schedule a save.
    NeedsSave,
}

impl Group {
    /// Creates the group as `file` describes it; the file exists if the group `is_known`.
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        folder: &Path,
        file: GroupFile,
        is_known: bool,
        session_timeout: Duration,
    ) -> Self {
        let GroupFile { group: name, topic, finished, .. } = file;
        let state = State {
            members: Members::new(session_timeout),
            is_known,
            partitions: finished.into_iter().map(PartitionProgress::from_offset).collect(),
            generation: 0,
            is_unsaved: false,
            is_discarded: false,
        };
        let path = GroupFile::path(folder, &name, &topic);
        Self {
            disk,
            path,
            name,
            topic,
            state: Mutex::new(state),
            saving: Mutex::default(),
            changes: watch::Sender::new(()),
        }
    }

    pub(crate) fn name(&self) -> &GroupName {
        &self.name
    }

    pub(crate) fn topic(&self) -> &TopicName {
        &self.topic
    }

    /// By partition: everything below is finished. A partition beyond the end of the list has no progress.
    pub(crate) fn finished(&self) -> Vec<u64> {
        self.state().finished()
    }

    pub(crate) fn member_count(&self) -> usize {
        self.state().members.count()
    }

    /// Whether the group has members or progress.
    pub(crate) fn exists(&self) -> bool {
        let state = self.state();
        state.is_known || state.members.count() > 0
    }

    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    pub(crate) fn join(&self) -> u64 {
        let mut state = self.state();
        let id = state.members.join();
        // Retention must know the group, even after a restart.
        state.is_unsaved |= !state.is_known;
        state.is_known = true;
        state.members.expire_sessions(id);
        self.rebalance(state);
        id
    }

    pub(crate) fn leave(&self, member: u64) {
        let mut state = self.state();
        state.members.leave(member);
        self.rebalance(state);
    }

    pub(crate) fn begin_waiting(&self, member: u64) {
        let mut state = self.state();
        if state.members.set_waiting(member, true) {
            self.rebalance(state);
        }
    }

    pub(crate) fn end_waiting(&self, member: u64) {
        self.state().members.set_waiting(member, false);
    }

    pub(crate) fn expire_sessions(&self, asking: u64) {
        let mut state = self.state();
        if state.members.expire_sessions(asking) {
            self.rebalance(state);
        }
    }

    pub(crate) fn deadline(&self, asking: u64) -> Option<Instant> {
        self.state().members.deadline(asking)
    }

    /// Records activity of `member`.
    pub(crate) fn record_activity(&self, member: u64) {
        self.state().members.record_activity(member);
    }

    /// Returns the partitions that `member` owns. `starts` holds the first offset of each partition of the topic; new
    /// partitions get an owner.
    pub(crate) fn partitions_of(&self, member: u64, starts: &[u64]) -> Vec<Assigned> {
        let mut state = self.state();
        if state.partitions.len() < starts.len() {
            state.partitions.resize(starts.len(), PartitionProgress::default());
            self.rebalance(state);
            state = self.state();
        }
        let owned = |(partition, (progress, start)): (usize, (&mut PartitionProgress, &u64))| {
            progress.truncate_before(*start);
            let (generation, finished) = (progress.generation, progress.finished());
            (progress.owner == Some(member)).then_some(Assigned { partition: partition as u32, generation, finished })
        };
        state.partitions.iter_mut().zip(starts).enumerate().filter_map(owned).collect()
    }

    /// Records that the owner of `partition` in `generation` read the message at `offset` for the first time. Within a
    /// generation, offsets come in order.
    pub(crate) fn deliver(&self, partition: u32, generation: u64, offset: u64) -> DeliveryDecision {
        let mut state = self.state();
        state.current(partition, generation).map_or(DeliveryDecision::Fenced, |progress| progress.deliver(offset))
    }

    /// Records that `member`, the owner of `partition` in `generation`, has finished the message at `offset`. It need
    /// not have been delivered, if it is the next in order.
    pub(crate) fn finish(&self, member: u64, partition: u32, generation: u64, offset: u64) -> FinishResult {
        let mut state = self.state();
        state.members.record_activity(member);
        let Some(progress) = state.current(partition, generation) else { return FinishResult::Fenced };
        if !progress.finish(offset) {
            return FinishResult::Recorded;
        }
        state.is_known = true;
        if std::mem::replace(&mut state.is_unsaved, true) { FinishResult::Recorded } else { FinishResult::NeedsSave }
    }

    /// Moves to `offsets`, one per partition, and invalidates everything in flight. Not yet saved.
    pub(crate) fn seek(&self, offsets: &[u64]) {
        let mut state = self.state();
        if state.partitions.len() < offsets.len() {
            state.partitions.resize(offsets.len(), PartitionProgress::default());
        }
        state.generation += 1;
        let State { partitions, generation, .. } = &mut *state;
        for (progress, offset) in partitions.iter_mut().zip(offsets) {
            progress.seek(*offset, *generation);
        }
        (state.is_known, state.is_unsaved) = (true, true);
        self.rebalance(state);
        self.changes.send_replace(());
    }

    /// Discards all progress; refused while there are members. Not yet saved.
    pub(crate) fn delete(&self) -> Result<()> {
        let mut state = self.state();
        let count = state.members.count();
        if count > 0 {
            let Self { name, topic, .. } = self;
            let sentence = format!("group {name} has members on topic {topic} ({count}); close them first");
            return Err(Error::new(ErrorKind::Conflict, sentence));
        }
        state.forget();
        Ok(())
    }

    /// Saves unsaved progress durably. Only the flusher thread may call this. Blocks.
    pub(crate) fn save(&self) -> Result<()> {
        let _saving = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        let finished = {
            let mut state = self.state();
            if !std::mem::take(&mut state.is_unsaved) || state.is_discarded {
                return Ok(());
            }
            state.is_known.then(|| state.finished())
        };
        let saved = match finished {
            Some(finished) => GroupFile::new(&self.name, &self.topic, finished).write(&*self.disk, &self.path),
            None => durable::remove(&*self.disk, &self.path),
        };
        if saved.is_err() {
            self.state().is_unsaved = true;
        }
        saved
    }

    /// Whether the topic was deleted.
    pub(crate) fn is_discarded(&self) -> bool {
        self.state().is_discarded
    }

    /// Discards the progress of a deleted topic. Nothing is written after this returns.
    pub(crate) fn discard(&self) {
        let mut state = self.state();
        state.forget();
        state.is_discarded = true;
        drop(state);
        // Wait for a save in progress.
        drop(self.saving.lock().unwrap_or_else(PoisonError::into_inner));
        self.changes.send_replace(());
    }

    /// Reassigns the partitions among the active members, and notifies them if any moved.
    fn rebalance(&self, mut state: MutexGuard<'_, State>) {
        let mut owners: Vec<Option<u64>> = state.partitions.iter().map(|progress| progress.owner).collect();
        balance(&mut owners, &state.members.active());
        let State { partitions, generation, .. } = &mut *state;
        let mut has_moved = false;
        for (progress, owner) in partitions.iter_mut().zip(owners).filter(|(progress, owner)| progress.owner != *owner)
        {
            *generation += 1;
            (progress.owner, progress.generation) = (owner, *generation);
            has_moved = true;
        }
        drop(state);
        if has_moved {
            self.changes.send_replace(());
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn finished(&self) -> Vec<u64> {
        self.partitions.iter().map(PartitionProgress::finished).collect()
    }

    /// Returns `partition`, if it is still in `generation`.
    fn current(&mut self, partition: u32, generation: u64) -> Option<&mut PartitionProgress> {
        self.partitions.get_mut(partition as usize).filter(|progress| progress.generation == generation)
    }

    fn forget(&mut self) {
        self.partitions.clear();
        self.is_unsaved |= self.is_known;
        self.is_known = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::SystemDisk;

    fn group(finished: &[u64]) -> Group {
        let (name, topic) = (GroupName::new("stock").unwrap(), TopicName::new("orders").unwrap());
        let file = GroupFile::new(&name, &topic, finished.to_vec());
        Group::new(Arc::new(SystemDisk), Path::new("nowhere"), file, !finished.is_empty(), Duration::from_secs(60))
    }

    fn numbers(assigned: &[Assigned]) -> Vec<u32> {
        assigned.iter().map(|assigned| assigned.partition).collect()
    }

    #[test]
    fn new_partitions_get_an_owner_and_the_others_stay() {
        let group = group(&[]);
        let (first, second) = (group.join(), group.join());
        assert_eq!(group.partitions_of(first, &[]), []);
        let before = [first, second].map(|member| group.partitions_of(member, &[0, 0, 0]));
        assert_eq!((numbers(&before[0]).len(), numbers(&before[1]).len()), (2, 1));
        let mut changes = group.changes();
        let after = [first, second].map(|member| group.partitions_of(member, &[0, 0, 0, 0, 0]));
        assert!(changes.has_changed().unwrap(), "the other members are notified");
        changes.mark_unchanged();
        for (before, after) in before.iter().zip(&after) {
            assert!(before.iter().all(|assigned| after.contains(assigned)), "no generation changes");
        }
        let mut all: Vec<u32> = after.iter().flat_map(|after| numbers(after)).collect();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3, 4]);
        group.partitions_of(second, &[0, 0, 0, 0, 0]);
        assert!(!changes.has_changed().unwrap());
    }

    #[test]
    fn removed_messages_are_skipped_and_do_not_block_the_group() {
        let group = group(&[3]);
        let first = group.join();
        let [assigned] = group.partitions_of(first, &[0])[..] else { panic!("one partition") };
        assert_eq!(assigned.finished, 3);
        for offset in 3..8 {
            assert_eq!(group.deliver(0, assigned.generation, offset), DeliveryDecision::Deliver);
        }
        group.finish(first, 0, assigned.generation, 6);
        group.leave(first);

        let second = group.join();
        let [assigned] = group.partitions_of(second, &[5])[..] else { panic!("one partition") };
        assert_eq!(assigned.finished, 5);
        assert_eq!(
            [5, 6, 7].map(|offset| group.deliver(0, assigned.generation, offset)),
            [DeliveryDecision::Deliver, DeliveryDecision::Finished, DeliveryDecision::Deliver]
        );
        group.finish(second, 0, assigned.generation, 5);
        assert_eq!(group.finished(), [7]);
        let [assigned] = group.partitions_of(second, &[20])[..] else { panic!("one partition") };
        assert_eq!((assigned.finished, group.finished()), (20, vec![20]));
    }

    #[test]
    fn undelivered_message_is_finished_in_order() {
        let group = group(&[0]);
        let member = group.join();
        let Assigned { generation, .. } = group.partitions_of(member, &[0])[0];
        assert_eq!(group.finish(member, 0, generation, 0), FinishResult::NeedsSave);
        assert_eq!(group.finished(), [1]);
        group.deliver(0, generation, 1);
        assert_eq!(group.finish(member, 0, generation, 2), FinishResult::Recorded);
        assert_eq!(group.finished(), [1], "its predecessor is in flight");
        group.finish(member, 0, generation, 1);
        assert_eq!(group.finished(), [3]);
    }

    #[test]
    fn previous_owner_can_neither_deliver_nor_finish() {
        let group = group(&[]);
        let first = group.join();
        let before = group.partitions_of(first, &[0])[0].generation;
        group.deliver(0, before, 0);
        group.seek(&[5]);
        assert_eq!(group.deliver(0, before, 1), DeliveryDecision::Fenced);
        assert_eq!(group.finish(first, 0, before, 0), FinishResult::Fenced);
        assert_eq!(group.finished(), [5]);
        let after = group.partitions_of(first, &[0])[0];
        assert_eq!((after.finished, after.generation > before), (5, true));
    }
}
