//! Compaction: of each key only the newest message has to be kept.
//!
//! A message is removed if a later one of the same key is stored in the same partition. What is left of it is its
//! offset, so that offsets stay without a gap, and its id, so that a resend of it is not taken for something new and
//! does not overtake what came after it. Messages without a key stay.
//!
//! Only finished segments are compacted, and only what every group has finished. The partition is read and the new segment
//! is written beside the running log; the writer's thread only puts it in its place.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use landfall_core::Result;

use crate::storage::cursor::{Cursor, Extents};
use crate::storage::index::{Builder, Described};
use crate::storage::partition::{Partition, Segment};
use crate::storage::reader::{Found, SegmentReader};
use crate::storage::record;
use crate::storage::recovery::note;
use crate::storage::rewrite::{Complete, Rewriter};

/// So many keys are looked at together. With more of them the partition is read several times.
const KEYS: u64 = 2_000_000;
/// A segment is rewritten if at least one part in so many of its records goes.
const WORTH_IT: usize = 4;

/// A compacted segment, and what belongs to it.
#[derive(Debug)]
pub(crate) struct Compacted {
    pub(crate) complete: Complete,
    pub(crate) index: Builder,
    pub(crate) end_offset: u64,
    /// How many messages were removed.
    pub(crate) messages: u64,
    /// The one in whose place it goes.
    pub(crate) old: Segment,
}

/// Which records of a segment go, by their distance from its first offset.
type Marks = Vec<bool>;

/// Marks what can go of the finished segments of `partition` whose messages all groups have finished, which is everything
/// below `needed`. Blocks on the files.
pub(crate) fn mark(partition: &Arc<Partition>, needed: u64) -> Result<Vec<(Segment, Marks)>> {
    let mut marked = Vec::new();
    for two in partition.segments().windows(2) {
        let (base, end) = (two[0].extent.base_offset, two[1].extent.base_offset);
        if end <= needed {
            marked.push((two[0].clone(), vec![false; (end - base) as usize]));
        }
    }
    let Some((first, _)) = marked.first() else { return Ok(marked) };
    let from = first.extent.base_offset;
    let passes = (partition.next_offset() - from).div_ceil(KEYS).max(1);
    let (one, other) = (RandomState::new(), RandomState::new());
    for pass in 0..passes {
        let mut newest: HashMap<(u64, u64), u64> = HashMap::new();
        let mut cursor = Cursor::new(partition.clone(), from);
        while let Some(batch) = cursor.next_batch()? {
            for record in &batch.records {
                let Some(key) = record.key() else { continue };
                // Two hashes are as good as the key, and do not take its room.
                let key = (one.hash_one(key), other.hash_one(key));
                if key.0 % passes == pass
                    && let Some(older) = newest.insert(key, record.offset)
                {
                    set(&mut marked, superseded(older, record.offset));
                }
            }
        }
    }
    marked.retain(|(_, marks)| marks.iter().filter(|goes| **goes).count() * WORTH_IT >= marks.len().max(1));
    Ok(marked)
}

/// Which of two messages with the same key goes.
fn superseded(older: u64, newer: u64) -> u64 {
    fail::fail_point!("landfall-log::keep-oldest", |_| newer);
    older.min(newer)
}

fn set(marked: &mut [(Segment, Marks)], offset: u64) {
    let index = marked.partition_point(|(segment, _)| segment.extent.base_offset <= offset);
    if let Some((segment, marks)) = index.checked_sub(1).and_then(|index| marked.get_mut(index))
        && let Some(mark) = marks.get_mut((offset - segment.extent.base_offset) as usize)
    {
        *mark = true;
    }
}

/// Writes `segment` anew without what is marked, beside the old one. Blocks on the files.
pub(crate) fn rewrite(partition: &Partition, segment: Segment, marks: &Marks) -> Result<Compacted> {
    let (disk, directory, base_offset) = (partition.disk(), partition.directory(), segment.extent.base_offset);
    let mut reader = SegmentReader::open(disk, directory, partition.partition(), base_offset)?;
    let bytes = reader.final_bytes()?;
    let mut rewriter = Rewriter::begin(disk, directory, reader.header(), bytes)?;
    let (mut index, mut messages) = (Builder::new(base_offset), 0);
    loop {
        let batch = match reader.next(bytes)? {
            Found::Batch(batch) => batch,
            Found::End => break,
            Found::Bad(defect) => return Err(reader.damaged(defect)),
        };
        let mut records = Vec::new();
        for record in &batch.records {
            let goes = marks.get((record.offset - base_offset) as usize).is_some_and(|goes| *goes);
            match record.known_by().filter(|_| goes && !record.is_removed()) {
                Some(id) => {
                    record::encode_removed(id, &mut records);
                    messages += 1;
                }
                None => record::encode_stored(record, &mut records),
            }
        }
        note(&batch, rewriter.position(), &mut index);
        rewriter.batch(&batch.header, &records)?;
    }
    let end_offset = reader.next_offset();
    Ok(Compacted { complete: rewriter.complete()?, index, end_offset, messages, old: segment })
}

impl Compacted {
    /// Puts it in its place. Only the writer's thread may call this.
    pub(crate) fn put_in_place(mut self, partition: &Partition) -> Result<Segment> {
        let producers = self.old.index.as_ref().map_or(Ok(Vec::new()), |index| index.producers())?;
        let extent = self.complete.put_in_place(partition.disk())?;
        let described = Described {
            salt: self.complete.header.salt,
            partition: partition.partition(),
            end_offset: self.end_offset,
            segment_bytes: extent.bytes,
        };
        let index = self.index.finish(partition.shared_disk(), partition.directory(), described, &producers)?;
        let segment = Segment { extent, created: self.old.created, index: Some(Arc::new(index)) };
        partition.replace(segment.clone());
        Ok(segment)
    }
}
