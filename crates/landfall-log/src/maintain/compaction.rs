//! Compaction: keeps only the newest message of each key.
//!
//! A message is removed if a later one of the same key is stored in the same partition. Its offset stays, so that
//! offsets have no gaps. Its id stays too, so that a resend is recognised as a duplicate and does not overtake later
//! messages. Messages without a key stay.
//!
//! Only finished segments are compacted, and only messages that every group has finished. The new segment is written
//! while the log runs; the writer thread only swaps it in.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use landfall_core::Result;

use crate::storage::cursor::{Cursor, Extents};
use crate::storage::index::{Builder, IndexedSegment};
use crate::storage::partition::{Partition, Segment};
use crate::storage::reader::{NextBatch, SegmentReader};
use crate::storage::record;
use crate::storage::recovery::index_batch;
use crate::storage::rewrite::{CompletedRewrite, Rewriter};

/// Keys that are processed in one pass. With more keys the partition is read several times.
const KEYS_PER_PASS: u64 = 2_000_000;
/// A segment is rewritten if at least one record in this many is removed.
const MIN_REMOVED_FRACTION: usize = 4;

/// A compacted segment, ready to replace the old one.
#[derive(Debug)]
pub(crate) struct Compacted {
    pub(crate) complete: CompletedRewrite,
    pub(crate) index: Builder,
    pub(crate) end_offset: u64,
    /// The number of removed messages.
    pub(crate) messages: u64,
    /// The segment that it replaces.
    pub(crate) old: Segment,
}

/// Which records of a segment are removed, by their distance from its first offset.
type Marks = Vec<bool>;

/// Finds the superseded records in the finished segments of `partition` below `needed`, the offset up to which all
/// groups have finished. Blocks on the files.
pub(crate) fn find_superseded(partition: &Arc<Partition>, needed: u64) -> Result<Vec<(Segment, Marks)>> {
    let mut marked = Vec::new();
    for two in partition.segments().windows(2) {
        let (base, end) = (two[0].extent.base_offset, two[1].extent.base_offset);
        if end <= needed {
            marked.push((two[0].clone(), vec![false; (end - base) as usize]));
        }
    }
    let Some((first, _)) = marked.first() else { return Ok(marked) };
    let from = first.extent.base_offset;
    let passes = (partition.next_offset() - from).div_ceil(KEYS_PER_PASS).max(1);
    let (one, other) = (RandomState::new(), RandomState::new());
    for pass in 0..passes {
        let mut newest: HashMap<(u64, u64), u64> = HashMap::new();
        let mut cursor = Cursor::new(partition.clone(), from);
        while let Some(batch) = cursor.next_batch()? {
            for record in &batch.records {
                let Some(key) = record.key() else { continue };
                // Two hashes identify a key as well as the key itself, and use less memory.
                let key = (one.hash_one(key), other.hash_one(key));
                if key.0 % passes == pass
                    && let Some(older) = newest.insert(key, record.offset)
                {
                    mark_removed(&mut marked, superseded(older, record.offset));
                }
            }
        }
    }
    marked.retain(|(_, marks)| {
        marks.iter().filter(|is_removed| **is_removed).count() * MIN_REMOVED_FRACTION >= marks.len().max(1)
    });
    Ok(marked)
}

/// Returns which of two messages with the same key is removed.
fn superseded(older: u64, newer: u64) -> u64 {
    fail::fail_point!("landfall-log::keep-oldest", |_| newer);
    older.min(newer)
}

fn mark_removed(marked: &mut [(Segment, Marks)], offset: u64) {
    let index = marked.partition_point(|(segment, _)| segment.extent.base_offset <= offset);
    if let Some((segment, marks)) = index.checked_sub(1).and_then(|index| marked.get_mut(index))
        && let Some(mark) = marks.get_mut((offset - segment.extent.base_offset) as usize)
    {
        *mark = true;
    }
}

/// Rewrites `segment` without its superseded records, beside the old one. Blocks on the files.
pub(crate) fn rewrite(partition: &Partition, segment: Segment, marks: &Marks) -> Result<Compacted> {
    let (disk, directory, base_offset) = (partition.disk(), partition.directory(), segment.extent.base_offset);
    let mut reader = SegmentReader::open(disk, directory, partition.partition(), base_offset)?;
    let bytes = reader.final_bytes()?;
    let mut rewriter = Rewriter::begin(disk, directory, reader.header(), bytes)?;
    let (mut index, mut messages) = (Builder::new(base_offset), 0);
    loop {
        let batch = match reader.next(bytes)? {
            NextBatch::Batch(batch) => batch,
            NextBatch::End => break,
            NextBatch::Bad(defect) => return Err(reader.damaged(defect)),
        };
        let mut records = Vec::new();
        for record in &batch.records {
            let is_removed = marks.get((record.offset - base_offset) as usize).is_some_and(|is_removed| *is_removed);
            match record.dedup_id().filter(|_| is_removed && !record.is_removed()) {
                Some(id) => {
                    record::encode_removed(id, &mut records);
                    messages += 1;
                }
                None => record::encode_stored(record, &mut records),
            }
        }
        index_batch(&batch, rewriter.position(), &mut index);
        rewriter.batch(&batch.header, &records)?;
    }
    let end_offset = reader.next_offset();
    Ok(Compacted { complete: rewriter.complete()?, index, end_offset, messages, old: segment })
}

impl Compacted {
    /// Replaces the old segment. Only the writer thread may call this.
    pub(crate) fn install(mut self, partition: &Partition) -> Result<Segment> {
        let producers = self.old.index.as_ref().map_or(Ok(Vec::new()), |index| index.producers())?;
        let extent = self.complete.install(partition.disk())?;
        let indexed = IndexedSegment {
            salt: self.complete.header.salt,
            partition: partition.partition(),
            end_offset: self.end_offset,
            segment_bytes: extent.bytes,
        };
        let index = self.index.finish(partition.shared_disk(), partition.directory(), indexed, &producers)?;
        let segment = Segment { extent, created: self.old.created, index: Some(Arc::new(index)) };
        partition.replace(segment.clone());
        Ok(segment)
    }
}
