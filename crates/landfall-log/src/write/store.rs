//! The state of the writer thread: the end of every partition, and what it needs to store each message once.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use landfall_core::{Error, ErrorCode, MessageId, Position, ProducerName, Refusal, Result, TopicName};

use crate::durable::{is_out_of_descriptors, is_passing};
use crate::maintain::compaction::Compacted;
use crate::maintain::retention::{self, Policy, Removed};
use crate::options::Options;
use crate::storage::batch::{self, Sequenced};
use crate::storage::cursor::Extents;
use crate::storage::partition::Partition;
use crate::storage::record;
use crate::topic::open::{Topic, Topics};
use crate::write::appender::{Appender, Part};
use crate::write::buffer_pool::BufferPool;
use crate::write::dedup::DedupIndex;
use crate::write::producers::{Epoch, ProducerId, Registry, SequenceCheck};

/// The result of appending one part.
#[derive(Debug, Clone)]
pub(crate) enum PartResult {
    /// Its records have the offsets from this one on.
    Appended(u64),
    /// The position of each record; some were stored before.
    Positions(Vec<Position>),
    /// Nothing was written.
    Refused(Refusal),
    /// Nothing was written: predecessors are missing. Holds the sequence expected next.
    Gap(u64),
}

#[derive(Debug)]
pub(crate) struct Store {
    options: Options,
    buffers: Arc<BufferPool>,
    topics: Arc<Topics>,
    registry: Registry,
    /// By partition id, so that they are always written in the same order; opened when first needed.
    appenders: BTreeMap<u64, Appender>,
    /// The ids of every topic that deduplicates.
    dedup: HashMap<TopicName, DedupIndex>,
    /// Appenders with writes that are not yet synced and visible to readers.
    touched: BTreeSet<u64>,
    /// Appenders synced since the last preallocation, if the disk preallocates ahead.
    synced: Vec<u64>,
    preallocates_ahead: bool,
    /// Partitions without space or file descriptors in this group: nothing may overtake a refused message.
    full: HashMap<u64, Refusal>,
}

impl Store {
    pub(crate) fn open(
        options: Options,
        buffers: Arc<BufferPool>,
        topics: Arc<Topics>,
        registry: Registry,
    ) -> Result<Self> {
        let preallocates_ahead = topics.disk().preallocates_ahead();
        let mut store = Self {
            options,
            buffers,
            topics,
            registry,
            appenders: BTreeMap::new(),
            dedup: HashMap::new(),
            touched: BTreeSet::new(),
            synced: Vec::new(),
            preallocates_ahead,
            full: HashMap::new(),
        };
        for topic in store.topics.all() {
            for partition in topic.partitions().iter() {
                store.registry.check(partition.recovered_producers())?;
            }
            if topic.settings().deduplicate {
                store.dedup.insert(topic.name(), load_ids(&topic)?);
            }
        }
        Ok(store)
    }

    /// Assigns offsets to the records of `part`. [`Self::write`] writes them. An error stops the log.
    pub(crate) fn append(&mut self, part: &mut Part) -> Result<PartResult> {
        if let Some(refusal) = self.full.get(&part.partition.id()) {
            return Ok(PartResult::Refused(refusal.clone()));
        }
        let appended = match part.sequenced {
            Some(sequenced) => self.append_sequenced(part, sequenced),
            None if part.deduplicate => self.append_unseen(part),
            None => self.push(part).and_then(|result| self.remember_ids(part, &result).map(|()| result)),
        };
        match appended {
            Err(error) if is_passing(&error) => Ok(PartResult::Refused(self.refuse(part, &error))),
            appended => appended,
        }
    }

    /// Refuses `part`, and whatever follows it in this group. Nothing was written.
    fn refuse(&mut self, part: &Part, error: &Error) -> Refusal {
        let refusal = passing(error);
        self.full.insert(part.partition.id(), refusal.clone());
        refusal
    }

    /// Appends the messages that the topic does not hold yet.
    fn append_unseen(&mut self, part: &mut Part) -> Result<PartResult> {
        let (partition, mut offset) = (part.partition.partition(), self.appender(&part.partition)?.next_offset());
        let dedup = self.dedup_index(part.partition.topic())?;
        let mut positions = Vec::new();
        let mut is_known = Vec::new();
        for (index, &id) in part.ids.iter().enumerate() {
            let found = dedup.find_or_insert(id, Position { partition, offset }).inspect_err(|_| {
                // None of them will be written.
                let is_inserted = |at: &usize| !is_known.get(*at).copied().unwrap_or(false);
                (0..index).filter(is_inserted).for_each(|at| dedup.remove(part.ids[at]));
            })?;
            if found.is_some() && positions.is_empty() {
                // The first duplicate: only now is the list worth its cost.
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
            return self.push(part).inspect(|result| self.forget_if_refused(part, &part.ids, result));
        }
        let mut known = is_known.iter();
        remove_records(part, |_| known.next().is_some_and(|is_known| *is_known));
        if part.ids.is_empty() {
            return Ok(PartResult::Positions(positions));
        }
        match self.push(part)? {
            PartResult::Appended(_) => Ok(PartResult::Positions(positions)),
            refused => {
                self.forget_if_refused(part, &part.ids, &refused);
                Ok(refused)
            }
        }
    }

    /// Forgets the ids of `part` if its messages were refused.
    fn forget_if_refused(&mut self, part: &Part, ids: &[MessageId], result: &PartResult) {
        if let (PartResult::Refused(_), Some(dedup)) = (result, self.dedup.get_mut(part.partition.topic())) {
            ids.iter().for_each(|id| dedup.remove(*id));
        }
    }

    /// Appends the messages of an idempotent producer.
    fn append_sequenced(&mut self, part: &mut Part, sequenced: Sequenced) -> Result<PartResult> {
        let Sequenced { producer, epoch, first } = sequenced;
        if self.registry.epoch(producer) != Some(epoch) {
            return Ok(PartResult::Refused(fenced()));
        }
        let check = self.appender(&part.partition)?.producers().check(producer, epoch, first, part.ids.len() as u64);
        match check {
            SequenceCheck::Fenced { .. } => Ok(PartResult::Refused(fenced())),
            SequenceCheck::Gap { expected } => Ok(PartResult::Gap(expected)),
            SequenceCheck::Duplicate => {
                Ok(PartResult::Positions(self.original_positions(part, sequenced, part.ids.len() as u64)?))
            }
            SequenceCheck::Next => {
                let result = self.push(part)?;
                self.remember_ids(part, &result)?;
                Ok(result)
            }
            SequenceCheck::PartialDuplicate { duplicates } => {
                let mut positions = self.original_positions(part, sequenced, duplicates)?;
                let mut index = 0;
                remove_records(part, |_| {
                    index += 1;
                    index <= duplicates
                });
                part.sequenced = Some(Sequenced { first: first + duplicates, ..sequenced });
                let result = self.push(part)?;
                self.remember_ids(part, &result)?;
                let PartResult::Appended(base) = result else { return Ok(result) };
                let partition = part.partition.partition();
                positions.extend((base..).take(part.ids.len()).map(|offset| Position { partition, offset }));
                Ok(PartResult::Positions(positions))
            }
        }
    }

    /// Remembers the ids of messages that were stored without a lookup: those of an idempotent producer, or encoded
    /// before deduplication was turned on. The first position of an id counts.
    fn remember_ids(&mut self, part: &Part, result: &PartResult) -> Result<()> {
        let PartResult::Appended(base) = result else { return Ok(()) };
        if !part.deduplicate && !self.dedup.contains_key(part.partition.topic()) {
            return Ok(());
        }
        let partition = part.partition.partition();
        let dedup = self.dedup_index(part.partition.topic())?;
        for (offset, &id) in (*base..).zip(&part.ids) {
            let position = Position { partition, offset };
            match dedup.find_or_insert(id, position) {
                // The message is stored, so its id must be known even if an older position cannot be looked up.
                Err(error) if is_out_of_descriptors(&error) => dedup.insert(id, position),
                found => drop(found?),
            }
        }
        Ok(())
    }

    /// Returns where the first `count` records of `part` were originally stored.
    fn original_positions(&mut self, part: &Part, sequenced: Sequenced, count: u64) -> Result<Vec<Position>> {
        // The pending batch is not in the index yet.
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

    fn push(&mut self, part: &mut Part) -> Result<PartResult> {
        let id = part.partition.id();
        match self.appender(&part.partition)?.push(part) {
            Ok(base_offset) => {
                self.touched.insert(id);
                Ok(PartResult::Appended(base_offset))
            }
            Err(error) if is_passing(&error) => Ok(PartResult::Refused(self.refuse(part, &error))),
            Err(error) => Err(error),
        }
    }

    /// Writes everything that was appended.
    pub(crate) fn write(&mut self) -> Result<()> {
        self.full.clear();
        self.touched().try_for_each(Appender::write)
    }

    /// Syncs everything that was written and makes it visible to readers.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.touched().try_for_each(Appender::sync)?;
        for id in std::mem::take(&mut self.touched) {
            let Some(appender) = self.appenders.get_mut(&id) else { continue };
            let topic = appender.partition().topic();
            if let Some(dedup) = self.dedup.get_mut(topic) {
                match seal_finished(dedup, appender) {
                    // The ids are loaded again when they are needed.
                    Err(error) if is_out_of_descriptors(&error) => drop(self.dedup.remove(topic)),
                    sealed => sealed?,
                }
            }
            // Only now, so that readers see nothing of it after an error.
            appender.publish();
            if self.preallocates_ahead {
                self.synced.push(id);
            }
        }
        Ok(())
    }

    /// Preallocates space for the next messages. Everything written must be synced.
    pub(crate) fn preallocate(&mut self) -> Result<()> {
        for id in std::mem::take(&mut self.synced) {
            if let Some(appender) = self.appenders.get_mut(&id) {
                appender.preallocate()?;
            }
        }
        Ok(())
    }

    /// Releases unused preallocated space. Everything must be synced.
    pub(crate) fn close(&mut self) -> Result<()> {
        self.appenders.values_mut().try_for_each(Appender::close)
    }

    /// Drops all state of a deleted topic.
    pub(crate) fn forget(&mut self, topic: &Topic) {
        for partition in topic.partitions().iter() {
            self.appenders.remove(&partition.id());
        }
        self.dedup.remove(&topic.name());
    }

    /// Applies retention to `partition`. Everything must be synced.
    pub(crate) fn retain(&mut self, partition: &Arc<Partition>, policy: &Policy) -> Result<Removed> {
        if retention::is_last_segment_expired(partition, policy) {
            self.appender(partition)?.roll()?;
            self.touched.insert(partition.id());
            self.sync()?;
        }
        retention::retain(partition, self.dedup.get_mut(partition.topic()), policy)
    }

    /// Replaces a segment of `partition` by its compacted version, unless the old one is gone.
    pub(crate) fn replace(&mut self, partition: &Partition, compacted: Compacted) -> Result<bool> {
        let base_offset = compacted.old.extent.base_offset;
        let is_there = partition.segments().iter().any(|segment| segment.extent.base_offset == base_offset);
        if !is_there || partition.is_deleted() {
            return Ok(false);
        }
        let segment = compacted.install(partition)?;
        if let (Some(dedup), Some(index)) = (self.dedup.get_mut(partition.topic()), segment.index) {
            dedup.add_sealed(partition.partition(), base_offset, index)?;
        }
        Ok(true)
    }

    /// Returns how many ids are known, and about how much memory they use.
    pub(crate) fn known_ids(&self) -> (u64, u64) {
        let sum = |(ids, bytes), dedup: &DedupIndex| (ids + dedup.len() as u64, bytes + dedup.memory_bytes() as u64);
        self.dedup.values().fold((0, 0), sum)
    }

    /// Drops the ids of a topic whose deduplication was turned on or off. They are rebuilt when needed, because
    /// nothing tracked them meanwhile.
    pub(crate) fn forget_ids(&mut self, topic: &TopicName) {
        self.dedup.remove(topic);
    }

    /// Issues a new epoch for the producer `name`; older epochs are fenced.
    pub(crate) fn register(&mut self, name: &ProducerName) -> Result<(ProducerId, Epoch)> {
        self.registry.register(name)
    }

    /// Returns the sequence of the next message of `producer` in `partition`.
    pub(crate) fn next_sequence(&mut self, partition: &Arc<Partition>, producer: ProducerId) -> Result<u64> {
        Ok(self.appender(partition)?.producers().next_sequence(producer))
    }

    fn touched(&mut self) -> impl Iterator<Item = &mut Appender> {
        let touched = &self.touched;
        self.appenders.iter_mut().filter(|(id, _)| touched.contains(id)).map(|(_, appender)| appender)
    }

    fn dedup_index(&mut self, topic: &TopicName) -> Result<&mut DedupIndex> {
        if !self.dedup.contains_key(topic) {
            let dedup = self.topics.get(topic).map_or_else(|| Ok(DedupIndex::new()), |topic| load_ids(&topic))?;
            self.dedup.insert(topic.clone(), dedup);
        }
        Ok(self.dedup.entry(topic.clone()).or_default())
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

/// Loads the ids of everything that `topic` holds.
fn load_ids(topic: &Topic) -> Result<DedupIndex> {
    let mut dedup = DedupIndex::new();
    fail::fail_point!("landfall-log::forget-ids", |_| Ok(DedupIndex::new()));
    for partition in topic.partitions().iter() {
        let number = partition.partition();
        for index in partition.segments().iter().filter_map(|segment| segment.index.as_ref()) {
            dedup.add_sealed(number, index.base_offset(), Arc::clone(index))?;
        }
        let insert = |id, offset| dedup.insert(id, Position { partition: number, offset });
        partition.unfinished().for_each_id(insert);
    }
    Ok(dedup)
}

fn seal_finished(dedup: &mut DedupIndex, appender: &Appender) -> Result<()> {
    for index in appender.finished().iter().filter_map(|segment| segment.index.as_ref()) {
        dedup.seal(appender.partition().partition(), index.base_offset(), Arc::clone(index))?;
    }
    Ok(())
}

/// Removes the records of `part` whose ids match `is_unwanted`, which is called once per record, in order.
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

fn passing(error: &Error) -> Refusal {
    let (code, what) = match is_out_of_descriptors(error) {
        true => (ErrorCode::UNAVAILABLE, "no file descriptor is left"),
        false => (ErrorCode::STORAGE_FULL, "the disk is full"),
    };
    Refusal { code, reason: format!("{what}: {error}"), retriable: true }
}

fn fenced() -> Refusal {
    let reason = "a newer instance of this producer has registered; this one is fenced permanently".into();
    Refusal { code: ErrorCode::FENCED, reason, retriable: false }
}
