//! What the writer's thread owns: the end of every partition, and what it must know to store a message once.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use landfall_core::{Error, ErrorCode, MessageId, Position, ProducerName, Refusal, Result, TopicName};

use crate::durable::is_full;
use crate::maintain::compaction::Compacted;
use crate::maintain::retention::{self, Policy, Removed};
use crate::options::Options;
use crate::storage::batch::{self, Sequenced};
use crate::storage::cursor::Extents;
use crate::storage::partition::Partition;
use crate::storage::record;
use crate::topic::open::{Topic, Topics};
use crate::write::appender::{Appender, Part};
use crate::write::buffers::Buffers;
use crate::write::producers::{Epoch, ProducerId, Registry, Verdict};
use crate::write::seen::Seen;

/// What became of one part.
#[derive(Debug, Clone)]
pub(crate) enum Placed {
    /// Its records have the offsets from this one on.
    From(u64),
    /// Where each record is; some were there before.
    Each(Vec<Position>),
    /// Nothing was written.
    Refused(Refusal),
    /// Nothing was written: something before it has not come. The sequence that should be next.
    Early(u64),
}

#[derive(Debug)]
pub(crate) struct Store {
    options: Options,
    buffers: Arc<Buffers>,
    topics: Arc<Topics>,
    registry: Registry,
    /// By the partition's id, so that they are always written in the same order; opened when first needed.
    appenders: BTreeMap<u64, Appender>,
    /// The ids of every topic that does not store a message twice.
    seen: HashMap<TopicName, Seen>,
    /// The appenders with something that is not synced and shown to readers yet.
    touched: BTreeSet<u64>,
    /// Those that were synced since work was last done ahead for them, if the disk is one on which it is.
    synced: Vec<u64>,
    works_ahead: bool,
    /// Partitions that had no room in this group: nothing may overtake what was refused.
    full: HashMap<u64, Refusal>,
}

impl Store {
    pub(crate) fn open(
        options: Options,
        buffers: Arc<Buffers>,
        topics: Arc<Topics>,
        registry: Registry,
    ) -> Result<Self> {
        let works_ahead = topics.disk().works_ahead();
        let mut store = Self {
            options,
            buffers,
            topics,
            registry,
            appenders: BTreeMap::new(),
            seen: HashMap::new(),
            touched: BTreeSet::new(),
            synced: Vec::new(),
            works_ahead,
            full: HashMap::new(),
        };
        for topic in store.topics.all() {
            for partition in topic.partitions().iter() {
                store.registry.check(partition.recovered_producers())?;
            }
            if topic.settings().deduplicate {
                store.seen.insert(topic.name(), seen_in(&topic)?);
            }
        }
        Ok(store)
    }

    /// Gives the records of `part` their places. They are written with [`Self::write`]. An error ends the log.
    pub(crate) fn take(&mut self, part: &mut Part) -> Result<Placed> {
        if let Some(refusal) = self.full.get(&part.partition.id()) {
            return Ok(Placed::Refused(refusal.clone()));
        }
        match part.sequenced {
            Some(sequenced) => self.take_next(part, sequenced),
            None if part.deduplicate => self.take_unseen(part),
            None => {
                let placed = self.push(part)?;
                self.see(part, &placed)?;
                Ok(placed)
            }
        }
    }

    /// Takes what the topic does not hold yet.
    fn take_unseen(&mut self, part: &mut Part) -> Result<Placed> {
        let (partition, mut offset) = (part.partition.partition(), self.appender(&part.partition)?.next_offset());
        let seen = self.seen(part.partition.topic())?;
        let mut positions = Vec::new();
        let mut is_known = Vec::new();
        for (index, &id) in part.ids.iter().enumerate() {
            let found = seen.find_or_insert(id, Position { partition, offset })?;
            if found.is_some() && positions.is_empty() {
                // The first that is known: only now is it worth a list.
                is_known = vec![false; part.ids.len()];
                positions =
                    (0..index as u64).map(|n| Position { partition, offset: offset - index as u64 + n }).collect();
            }
            let position = found.unwrap_or(Position { partition, offset });
            offset += u64::from(found.is_none());
            if !is_known.is_empty() {
                is_known[index] = found.is_some();
                positions.push(position);
            }
        }
        if is_known.is_empty() {
            return self.push(part).inspect(|placed| self.unsee_if_refused(part, &part.ids, placed));
        }
        let mut known = is_known.iter();
        remove_records(part, |_| known.next().is_some_and(|is_known| *is_known));
        if part.ids.is_empty() {
            return Ok(Placed::Each(positions));
        }
        match self.push(part)? {
            Placed::From(_) => Ok(Placed::Each(positions)),
            refused => {
                self.unsee_if_refused(part, &part.ids, &refused);
                Ok(refused)
            }
        }
    }

    /// Takes back that the messages of `part` are known, if they were not stored after all.
    fn unsee_if_refused(&mut self, part: &Part, ids: &[MessageId], placed: &Placed) {
        if let (Placed::Refused(_), Some(seen)) = (placed, self.seen.get_mut(part.partition.topic())) {
            ids.iter().for_each(|id| seen.remove(*id));
        }
    }

    /// Takes what comes next of an idempotent producer.
    fn take_next(&mut self, part: &mut Part, sequenced: Sequenced) -> Result<Placed> {
        let Sequenced { producer, epoch, first } = sequenced;
        if self.registry.epoch(producer) != Some(epoch) {
            return Ok(Placed::Refused(fenced()));
        }
        let verdict = self.appender(&part.partition)?.producers().check(producer, epoch, first, part.ids.len() as u64);
        match verdict {
            Verdict::Fenced { .. } => Ok(Placed::Refused(fenced())),
            Verdict::Gap { expected } => Ok(Placed::Early(expected)),
            Verdict::Repeat => Ok(Placed::Each(self.first_positions(part, sequenced, part.ids.len() as u64)?)),
            Verdict::Next => {
                let placed = self.push(part)?;
                self.see(part, &placed)?;
                Ok(placed)
            }
            Verdict::Partly { repeated } => {
                let mut positions = self.first_positions(part, sequenced, repeated)?;
                let mut index = 0;
                remove_records(part, |_| {
                    index += 1;
                    index <= repeated
                });
                part.sequenced = Some(Sequenced { first: first + repeated, ..sequenced });
                let placed = self.push(part)?;
                self.see(part, &placed)?;
                let Placed::From(base) = placed else { return Ok(placed) };
                let partition = part.partition.partition();
                positions.extend((base..).take(part.ids.len()).map(|offset| Position { partition, offset }));
                Ok(Placed::Each(positions))
            }
        }
    }

    /// What was stored without a look at its ids is known by them, too: it came from an idempotent producer, or set
    /// out before the topic was told to look at them. Of an id that is there twice the first place counts.
    fn see(&mut self, part: &Part, placed: &Placed) -> Result<()> {
        let Placed::From(base) = placed else { return Ok(()) };
        if !part.deduplicate && !self.seen.contains_key(part.partition.topic()) {
            return Ok(());
        }
        let partition = part.partition.partition();
        let seen = self.seen(part.partition.topic())?;
        for (offset, &id) in (*base..).zip(&part.ids) {
            seen.find_or_insert(id, Position { partition, offset })?;
        }
        Ok(())
    }

    /// Where the first `count` records of `part` were stored when they came for the first time.
    fn first_positions(&mut self, part: &Part, sequenced: Sequenced, count: u64) -> Result<Vec<Position>> {
        // What is pending is not in the index yet.
        self.appender(&part.partition)?.write()?;
        let (partition, producer) = (&part.partition, sequenced.producer);
        let finished = self.appenders.get(&partition.id()).map(Appender::finished).unwrap_or_default();
        let offsets_from = |sequence| -> Result<Range<u64>> {
            if let Some(offsets) = partition.unfinished().offsets_from(producer, sequence) {
                return Ok(offsets);
            }
            for segment in finished.iter().rev().chain(partition.segments().iter().rev()) {
                if let Some(index) = &segment.index
                    && let Some(offsets) = index.offsets_from(producer, sequence)?
                {
                    return Ok(offsets);
                }
            }
            // It was stored, and retention has removed it since.
            let start = partition.start_offset();
            Ok(start..start + 1)
        };
        let mut positions = Vec::with_capacity(count as usize);
        while (positions.len() as u64) < count {
            let offsets = offsets_from(sequenced.first + positions.len() as u64)?;
            let position = |offset| Position { partition: partition.partition(), offset };
            positions.extend(offsets.take(count as usize - positions.len()).map(position));
        }
        Ok(positions)
    }

    fn push(&mut self, part: &mut Part) -> Result<Placed> {
        let id = part.partition.id();
        match self.appender(&part.partition)?.push(part) {
            Ok(base_offset) => {
                self.touched.insert(id);
                Ok(Placed::From(base_offset))
            }
            Err(error) if is_full(&error) => {
                let refusal = no_room(&error);
                self.full.insert(id, refusal.clone());
                Ok(Placed::Refused(refusal))
            }
            Err(error) => Err(error),
        }
    }

    /// Writes what was taken.
    pub(crate) fn write(&mut self) -> Result<()> {
        self.full.clear();
        self.touched().try_for_each(Appender::write)
    }

    /// Makes durable what was written, and lets readers see it.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.touched().try_for_each(Appender::sync)?;
        for id in std::mem::take(&mut self.touched) {
            let Some(appender) = self.appenders.get_mut(&id) else { continue };
            if let Some(seen) = self.seen.get_mut(appender.partition().topic()) {
                for segment in appender.finished() {
                    if let Some(index) = &segment.index {
                        seen.seal(appender.partition().partition(), index.base_offset(), Arc::clone(index))?;
                    }
                }
            }
            // Only now, so that after an error nothing of it is seen.
            appender.publish();
            if self.works_ahead {
                self.synced.push(id);
            }
        }
        Ok(())
    }

    /// What can be done for the next messages before they come. Everything that was written must be synced.
    pub(crate) fn work_ahead(&mut self) -> Result<()> {
        for id in std::mem::take(&mut self.synced) {
            if let Some(appender) = self.appenders.get_mut(&id) {
                appender.make_room_ahead()?;
            }
        }
        Ok(())
    }

    /// Gives back the room that was made and not used. Everything must be synced.
    pub(crate) fn close(&mut self) -> Result<()> {
        self.appenders.values_mut().try_for_each(Appender::close)
    }

    /// The topic was deleted.
    pub(crate) fn forget(&mut self, topic: &Topic) {
        for partition in topic.partitions().iter() {
            self.appenders.remove(&partition.id());
        }
        self.seen.remove(&topic.name());
    }

    /// Removes what need not be kept of `partition`. Everything must be synced.
    pub(crate) fn retain(&mut self, partition: &Arc<Partition>, policy: &Policy) -> Result<Removed> {
        if retention::wants_all(partition, policy) {
            self.appender(partition)?.roll()?;
            self.touched.insert(partition.id());
            self.sync()?;
        }
        retention::retain(partition, self.seen.get_mut(partition.topic()), policy)
    }

    /// Puts a compacted segment of `partition` in its place, if the old one is still there.
    pub(crate) fn replace(&mut self, partition: &Partition, compacted: Compacted) -> Result<bool> {
        let base_offset = compacted.old.extent.base_offset;
        let is_there = partition.segments().iter().any(|segment| segment.extent.base_offset == base_offset);
        if !is_there || partition.is_deleted() {
            return Ok(false);
        }
        let segment = compacted.put_in_place(partition)?;
        if let (Some(seen), Some(index)) = (self.seen.get_mut(partition.topic()), segment.index) {
            seen.add_sealed(partition.partition(), base_offset, index)?;
        }
        Ok(true)
    }

    /// How many ids it knows of everything that was stored, and what that takes in memory, about.
    pub(crate) fn known_ids(&self) -> (u64, u64) {
        let sum = |(ids, bytes), seen: &Seen| (ids + seen.len() as u64, bytes + seen.memory_bytes() as u64);
        self.seen.values().fold((0, 0), sum)
    }

    /// The ids of the topic were looked at, or were not, and that has changed. What they are is found out anew when it
    /// matters: nobody noted them meanwhile.
    pub(crate) fn forget_ids(&mut self, topic: &TopicName) {
        self.seen.remove(topic);
    }

    /// A new epoch for the producer called `name`: whoever came with an older one can write nothing more.
    pub(crate) fn register(&mut self, name: &ProducerName) -> Result<(ProducerId, Epoch)> {
        self.registry.register(name)
    }

    /// The sequence that the next message of `producer` in `partition` must have.
    pub(crate) fn next_sequence(&mut self, partition: &Arc<Partition>, producer: ProducerId) -> Result<u64> {
        Ok(self.appender(partition)?.producers().next_sequence(producer))
    }

    fn touched(&mut self) -> impl Iterator<Item = &mut Appender> {
        let touched = &self.touched;
        self.appenders.iter_mut().filter(|(id, _)| touched.contains(id)).map(|(_, appender)| appender)
    }

    fn seen(&mut self, topic: &TopicName) -> Result<&mut Seen> {
        if !self.seen.contains_key(topic) {
            let seen = self.topics.get(topic).map_or_else(|| Ok(Seen::new()), |topic| seen_in(&topic))?;
            self.seen.insert(topic.clone(), seen);
        }
        Ok(self.seen.entry(topic.clone()).or_default())
    }

    fn appender(&mut self, partition: &Arc<Partition>) -> Result<&mut Appender> {
        match self.appenders.entry(partition.id()) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => {
                let (partition, buffers) = (Arc::clone(partition), Arc::clone(&self.buffers));
                Ok(entry.insert(Appender::open(partition, self.options, buffers)?))
            }
        }
    }
}

/// The ids of everything that `topic` holds.
fn seen_in(topic: &Topic) -> Result<Seen> {
    let mut seen = Seen::new();
    fail::fail_point!("landfall-log::forget-ids", |_| Ok(Seen::new()));
    for partition in topic.partitions().iter() {
        let number = partition.partition();
        for index in partition.segments().iter().filter_map(|segment| segment.index.as_ref()) {
            seen.add_sealed(number, index.base_offset(), Arc::clone(index))?;
        }
        let insert = |id, offset| seen.insert(id, Position { partition: number, offset });
        partition.unfinished().for_each_id(insert);
    }
    Ok(seen)
}

/// Takes those records out of `part` for whose ids `is_unwanted` holds; it is asked once for each, in order.
fn remove_records(part: &mut Part, mut is_unwanted: impl FnMut(&MessageId) -> bool) {
    let mut kept = vec![0; batch::HEADER_BYTES];
    let mut rest = part.records();
    let mut ids = Vec::new();
    for id in &part.ids {
        let (record, others) = record::split_first(rest);
        rest = others;
        if !is_unwanted(id) {
            kept.extend_from_slice(record);
            ids.push(*id);
        }
    }
    (part.buffer, part.ids) = (kept, ids);
}

fn no_room(error: &Error) -> Refusal {
    let reason = format!("there is no room for the message: {error}");
    Refusal { code: ErrorCode::STORAGE_FULL, reason, retriable: true }
}

fn fenced() -> Refusal {
    let reason = "a newer instance of this producer has taken over; this one can write nothing more".into();
    Refusal { code: ErrorCode::FENCED, reason, retriable: false }
}
