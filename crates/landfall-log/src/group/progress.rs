//! One group on one topic: who its members are, which of them has which partition, and how far it has come in each.
//!
//! Each partition belongs to one member, so that a key stays in order. When somebody joins, leaves or falls silent,
//! partitions move at once: what a member had not finished of a partition it lost is delivered again to the new
//! owner. A member beyond the number of partitions gets nothing and stands by.
//!
//! Every time that a partition changes hands or is sought it gets a new **generation**. An acknowledgement names the
//! generation in which its message was delivered and counts in no other: whoever lost a partition cannot move it.
//!
//! What is saved is one offset per partition. As long as the log is open more is known: what was finished beyond the
//! first gap. So a partition that moves takes along what is unfinished, and nothing that was acknowledged comes again.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use landfall_broker_toolkit::assignment::balance;
use landfall_core::{Error, ErrorKind, GroupName, Result, TopicName};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::disk::Disk;
use crate::durable;
use crate::group::file::GroupFile;
use crate::group::members::Members;
use crate::group::place::{Place, Turn};

#[derive(Debug)]
pub(crate) struct Group {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    name: GroupName,
    topic: TopicName,
    state: Mutex<State>,
    /// Held while the file is being written.
    saving: Mutex<()>,
    /// Changes whenever partitions have moved.
    changes: watch::Sender<()>,
}

#[derive(Debug)]
struct State {
    members: Members,
    /// As many as anybody has asked for or finished something in.
    partitions: Vec<Place>,
    /// The last one that was given out.
    generation: u64,
    /// It has finished or sought something, and so has a file.
    is_known: bool,
    is_unsaved: bool,
    /// The topic was deleted: nothing counts any more, and nothing may be written.
    is_discarded: bool,
}

/// A partition that belongs to a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Assigned {
    pub(crate) partition: u32,
    pub(crate) generation: u64,
    /// Everything below is finished.
    pub(crate) finished: u64,
}

/// What came of something that somebody says is finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finish {
    /// It counts nothing: the partition is in another generation.
    Fenced,
    Noted,
    /// Noted, and somebody must now see to it that it is saved.
    Unsaved,
}

impl Group {
    /// The group as `file` describes it, which is there if the group `is_known`.
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
            partitions: finished.into_iter().map(Place::at).collect(),
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

    /// By partition, below which offset everything is finished; of a partition that is not in the list nothing is.
    pub(crate) fn finished(&self) -> Vec<u64> {
        self.state().finished()
    }

    pub(crate) fn member_count(&self) -> usize {
        self.state().members.count()
    }

    /// Whether there is anything to tell of it: somebody is there, or was and has left something behind.
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
        // Retention must know of it, also after a restart.
        state.is_unsaved |= !state.is_known;
        state.is_known = true;
        state.members.pass_over_silent(id);
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

    pub(crate) fn pass_over_silent(&self, asking: u64) {
        let mut state = self.state();
        if state.members.pass_over_silent(asking) {
            self.rebalance(state);
        }
    }

    pub(crate) fn deadline(&self, asking: u64) -> Option<Instant> {
        self.state().members.deadline(asking)
    }

    /// `member` has given a sign of life.
    pub(crate) fn seen(&self, member: u64) {
        self.state().members.seen(member);
    }

    /// Those of the topic's partitions that belong to `member`. Each begins at its offset in `starts`, one per
    /// partition; partitions that are new get an owner.
    pub(crate) fn partitions_of(&self, member: u64, starts: &[u64]) -> Vec<Assigned> {
        let mut state = self.state();
        if state.partitions.len() < starts.len() {
            state.partitions.resize(starts.len(), Place::default());
            self.rebalance(state);
            state = self.state();
        }
        let owned = |(partition, (place, start)): (usize, (&mut Place, &u64))| {
            place.begin_at(*start);
            let (generation, finished) = (place.generation, place.finished());
            (place.owner == Some(member)).then_some(Assigned { partition: partition as u32, generation, finished })
        };
        state.partitions.iter_mut().zip(starts).enumerate().filter_map(owned).collect()
    }

    /// The message at `offset` of `partition` was read by whom the partition was given to in `generation`, for the
    /// first time in it. Within a generation this happens in the order of the offsets.
    pub(crate) fn deliver(&self, partition: u32, generation: u64, offset: u64) -> Turn {
        let mut state = self.state();
        state.current(partition, generation).map_or(Turn::Fenced, |place| place.deliver(offset))
    }

    /// `member`, to whom `partition` was given in `generation`, has finished what stands at `offset`. It need not have
    /// been delivered, if it is the next in order.
    pub(crate) fn finish(&self, member: u64, partition: u32, generation: u64, offset: u64) -> Finish {
        let mut state = self.state();
        state.members.seen(member);
        let Some(place) = state.current(partition, generation) else { return Finish::Fenced };
        if !place.finish(offset) {
            return Finish::Noted;
        }
        state.is_known = true;
        if std::mem::replace(&mut state.is_unsaved, true) { Finish::Noted } else { Finish::Unsaved }
    }

    /// Goes to `offsets`, one per partition; whatever is in flight counts nothing any more. Not yet saved.
    pub(crate) fn seek(&self, offsets: &[u64]) {
        let mut state = self.state();
        if state.partitions.len() < offsets.len() {
            state.partitions.resize(offsets.len(), Place::default());
        }
        state.generation += 1;
        let State { partitions, generation, .. } = &mut *state;
        for (place, offset) in partitions.iter_mut().zip(offsets) {
            place.seek(*offset, *generation);
        }
        (state.is_known, state.is_unsaved) = (true, true);
        self.rebalance(state);
        self.changes.send_replace(());
    }

    /// Forgets everything that it has finished. Refused while there are members. Not yet saved.
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

    /// Makes what has changed durable, if anything has. Only the flusher's thread may call this. Blocks.
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

    /// The topic was deleted. Once this returns nothing is written any more.
    pub(crate) fn discard(&self) {
        let mut state = self.state();
        state.forget();
        state.is_discarded = true;
        drop(state);
        // Whoever is writing finishes first.
        drop(self.saving.lock().unwrap_or_else(PoisonError::into_inner));
        self.changes.send_replace(());
    }

    /// Shares out the partitions anew among those who are there, and tells them if anything moved.
    fn rebalance(&self, mut state: MutexGuard<'_, State>) {
        let mut owners: Vec<Option<u64>> = state.partitions.iter().map(|place| place.owner).collect();
        balance(&mut owners, &state.members.active());
        let State { partitions, generation, .. } = &mut *state;
        let mut has_moved = false;
        for (place, owner) in partitions.iter_mut().zip(owners).filter(|(place, owner)| place.owner != *owner) {
            *generation += 1;
            (place.owner, place.generation) = (owner, *generation);
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
        self.partitions.iter().map(Place::finished).collect()
    }

    /// `partition`, if it is still in the hands that it was in at `generation`.
    fn current(&mut self, partition: u32, generation: u64) -> Option<&mut Place> {
        self.partitions.get_mut(partition as usize).filter(|place| place.generation == generation)
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
    fn partitions_that_are_new_get_an_owner_and_the_others_stay() {
        let group = group(&[]);
        let (first, second) = (group.join(), group.join());
        assert_eq!(group.partitions_of(first, &[]), []);
        let before = [first, second].map(|member| group.partitions_of(member, &[0, 0, 0]));
        assert_eq!((numbers(&before[0]).len(), numbers(&before[1]).len()), (2, 1));
        let mut changes = group.changes();
        let after = [first, second].map(|member| group.partitions_of(member, &[0, 0, 0, 0, 0]));
        assert!(changes.has_changed().unwrap(), "the others are told");
        changes.mark_unchanged();
        for (before, after) in before.iter().zip(&after) {
            assert!(before.iter().all(|assigned| after.contains(assigned)), "no generation ends");
        }
        let mut all: Vec<u32> = after.iter().flat_map(|after| numbers(after)).collect();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3, 4]);
        group.partitions_of(second, &[0, 0, 0, 0, 0]);
        assert!(!changes.has_changed().unwrap());
    }

    #[test]
    fn what_retention_removed_is_passed_over_and_does_not_hold_the_group_up() {
        let group = group(&[3]);
        let first = group.join();
        let [assigned] = group.partitions_of(first, &[0])[..] else { panic!("one partition") };
        assert_eq!(assigned.finished, 3);
        for offset in 3..8 {
            assert_eq!(group.deliver(0, assigned.generation, offset), Turn::Deliver);
        }
        group.finish(first, 0, assigned.generation, 6);
        group.leave(first);

        let second = group.join();
        let [assigned] = group.partitions_of(second, &[5])[..] else { panic!("one partition") };
        assert_eq!(assigned.finished, 5);
        assert_eq!(
            [5, 6, 7].map(|offset| group.deliver(0, assigned.generation, offset)),
            [Turn::Deliver, Turn::Finished, Turn::Deliver]
        );
        group.finish(second, 0, assigned.generation, 5);
        assert_eq!(group.finished(), [7]);
        let [assigned] = group.partitions_of(second, &[20])[..] else { panic!("one partition") };
        assert_eq!((assigned.finished, group.finished()), (20, vec![20]));
    }

    #[test]
    fn what_is_there_for_nobody_is_finished_at_once_and_in_its_turn() {
        let group = group(&[0]);
        let member = group.join();
        let Assigned { generation, .. } = group.partitions_of(member, &[0])[0];
        assert_eq!(group.finish(member, 0, generation, 0), Finish::Unsaved);
        assert_eq!(group.finished(), [1]);
        group.deliver(0, generation, 1);
        assert_eq!(group.finish(member, 0, generation, 2), Finish::Noted);
        assert_eq!(group.finished(), [1], "the one before it is in flight");
        group.finish(member, 0, generation, 1);
        assert_eq!(group.finished(), [3]);
    }

    #[test]
    fn whoever_lost_a_partition_neither_delivers_nor_finishes_in_it() {
        let group = group(&[]);
        let first = group.join();
        let before = group.partitions_of(first, &[0])[0].generation;
        group.deliver(0, before, 0);
        group.seek(&[5]);
        assert_eq!(group.deliver(0, before, 1), Turn::Fenced);
        assert_eq!(group.finish(first, 0, before, 0), Finish::Fenced);
        assert_eq!(group.finished(), [5]);
        let after = group.partitions_of(first, &[0])[0];
        assert_eq!((after.finished, after.generation > before), (5, true));
    }
}
