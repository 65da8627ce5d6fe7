//! One group on one topic: who its members are, which of them has which partition, and how far it has come in each.
//!
//! Each partition belongs to one member, so that a key stays in order. When somebody joins, leaves or falls silent,
//! partitions move at once: what a member had not finished of a partition it lost is delivered again to the new
//! owner. A member beyond the number of partitions gets nothing and stands by.
//!
//! Every time that a partition changes hands or is sought it gets a new **generation**. An acknowledgement names the
//! generation in which its message was delivered and counts in no other: whoever lost a partition cannot move it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use landfall_core::{Error, ErrorKind, GroupName, Result, TopicName};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::assignment::balance;
use crate::disk::Disk;
use crate::durable;
use crate::group_file::GroupFile;
use crate::members::Members;

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

#[derive(Debug, Clone, Copy, Default)]
struct Place {
    /// Everything below is finished.
    finished: u64,
    owner: Option<u64>,
    generation: u64,
}

/// A partition that belongs to a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Assigned {
    pub(crate) partition: u32,
    pub(crate) generation: u64,
    /// Everything below is finished.
    pub(crate) finished: u64,
}

/// What came of progress that somebody reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Advance {
    /// It counts nothing: the partition is in another generation.
    Fenced,
    Noted,
    /// Noted, and somebody must now see to it that it is saved.
    Unsaved,
}

impl Group {
    /// The group as `file` describes it.
    pub(crate) fn new(disk: Arc<dyn Disk>, folder: &Path, file: GroupFile, session_timeout: Duration) -> Self {
        let GroupFile { group: name, topic, finished, .. } = file;
        let place = |finished| Place { finished, ..Place::default() };
        let state = State {
            members: Members::new(session_timeout),
            is_known: !finished.is_empty(),
            partitions: finished.into_iter().map(place).collect(),
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
        self.state().partitions.iter().map(|place| place.finished).collect()
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

    /// Those of the topic's `count` partitions that belong to `member`. Partitions that are new get an owner.
    pub(crate) fn partitions_of(&self, member: u64, count: usize) -> Vec<Assigned> {
        let mut state = self.state();
        if state.partitions.len() < count {
            state.partitions.resize(count, Place::default());
            self.rebalance(state);
            state = self.state();
        }
        let owned = |(partition, place): (usize, &Place)| {
            let Place { finished, owner, generation } = *place;
            (owner == Some(member)).then_some(Assigned { partition: partition as u32, generation, finished })
        };
        state.partitions.iter().take(count).enumerate().filter_map(owned).collect()
    }

    /// Whether `partition` is still in the hands that it was in at `generation`.
    pub(crate) fn is_current(&self, partition: u32, generation: u64) -> bool {
        self.state().partitions.get(partition as usize).is_some_and(|place| place.generation == generation)
    }

    /// `member`, to whom `partition` was given in `generation`, has finished everything in it below `offset`.
    pub(crate) fn advance(&self, member: u64, partition: u32, generation: u64, offset: u64) -> Advance {
        let mut state = self.state();
        state.members.seen(member);
        let place = state.partitions.get_mut(partition as usize);
        let Some(place) = place.filter(|place| place.generation == generation) else { return Advance::Fenced };
        if offset <= place.finished {
            return Advance::Noted;
        }
        place.finished = offset;
        state.is_known = true;
        if std::mem::replace(&mut state.is_unsaved, true) { Advance::Noted } else { Advance::Unsaved }
    }

    /// Goes to `offsets`, one per partition; whatever is in flight counts nothing any more. Not yet saved.
    pub(crate) fn seek(&self, offsets: &[u64]) {
        let mut state = self.state();
        if state.partitions.len() < offsets.len() {
            state.partitions.resize(offsets.len(), Place::default());
        }
        state.is_known = true;
        state.restart(offsets);
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
        if state.is_known {
            state.is_known = false;
            state.restart(&[]);
        }
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
            state.is_known.then(|| state.partitions.iter().map(|place| place.finished).collect())
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
        self.state().is_discarded = true;
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
    /// Begins every partition anew at its offset in `offsets`, or at 0, in a new generation.
    fn restart(&mut self, offsets: &[u64]) {
        self.generation += 1;
        for (partition, place) in self.partitions.iter_mut().enumerate() {
            place.finished = offsets.get(partition).copied().unwrap_or_default();
            place.generation = self.generation;
        }
        self.is_unsaved = true;
    }
}
