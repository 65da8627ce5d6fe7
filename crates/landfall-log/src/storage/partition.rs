//! One partition of an open log, shared by its writer and its readers.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use landfall_core::{Result, Timestamp, TopicName};
use tokio::sync::watch;

use crate::disk::Disk;
use crate::storage::cursor::{EndState, Extents, ReadableSegment};
use crate::storage::index::{BatchPosition, Builder, IndexFile};
use crate::storage::segment::{Extent, SegmentHeader};
use crate::write::producers::ProducerState;

/// The synced part of a partition. The writer extends it after each sync; readers see nothing beyond it.
#[derive(Debug)]
pub(crate) struct Partition {
    disk: Arc<dyn Disk>,
    id: u64,
    topic: TopicName,
    number: u32,
    directory: PathBuf,
    segments: RwLock<Vec<Segment>>,
    /// The index of the last segment. It is ahead of the readers: it includes unsynced batches, and its segment may
    /// not be visible yet.
    unfinished: Mutex<Builder>,
    /// The state of each producer when the partition was opened.
    producers: Vec<ProducerState>,
    next_offset: AtomicU64,
    is_deleted: AtomicBool,
    /// Compaction has processed every offset below.
    compacted: AtomicU64,
    /// Notified after each extension; shared by the partitions of a topic.
    progress: Arc<watch::Sender<()>>,
}

/// A segment, as far as it was synced.
#[derive(Debug, Clone)]
pub(crate) struct Segment {
    pub(crate) extent: Extent,
    pub(crate) created: Timestamp,
    /// `None` for the last segment.
    pub(crate) index: Option<Arc<IndexFile>>,
}

/// The state of a partition after recovery.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) segments: Vec<Segment>,
    pub(crate) next_offset: u64,
    pub(crate) unfinished: Builder,
    pub(crate) producers: Vec<ProducerState>,
}

impl Recovered {
    /// A partition in which nothing was ever stored.
    pub(crate) fn empty() -> Self {
        Self { segments: Vec::new(), next_offset: 0, unfinished: Builder::new(0), producers: Vec::new() }
    }
}

/// The location of a partition, and the channel that announces new records.
#[derive(Debug)]
pub(crate) struct Location {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) topic: TopicName,
    pub(crate) number: u32,
    pub(crate) directory: PathBuf,
    pub(crate) progress: Arc<watch::Sender<()>>,
}

impl Partition {
    pub(crate) fn new(location: Location, recovered: Recovered) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let Location { disk, topic, number, directory, progress } = location;
        Self {
            disk,
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            topic,
            number,
            directory,
            segments: RwLock::new(recovered.segments),
            unfinished: Mutex::new(recovered.unfinished),
            producers: recovered.producers,
            next_offset: AtomicU64::new(recovered.next_offset),
            is_deleted: AtomicBool::new(false),
            compacted: AtomicU64::new(0),
            progress,
        }
    }

    /// Identifies the partition within this process.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn topic(&self) -> &TopicName {
        &self.topic
    }

    /// The first offset that is still stored.
    pub(crate) fn start_offset(&self) -> u64 {
        self.segments().first().map_or(0, |segment| segment.extent.base_offset)
    }

    pub(crate) fn next_offset(&self) -> u64 {
        self.next_offset.load(Ordering::Acquire)
    }

    pub(crate) fn segment_count(&self) -> usize {
        self.segments().len()
    }

    /// Whether its topic was deleted: its files are gone, or belong to a new topic.
    pub(crate) fn is_deleted(&self) -> bool {
        self.is_deleted.load(Ordering::Acquire)
    }

    pub(crate) fn set_deleted(&self, is_deleted: bool) {
        self.is_deleted.store(is_deleted, Ordering::Release);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.segments().iter().map(|segment| segment.extent.bytes).sum()
    }

    pub(crate) fn shared_disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// The state of each producer when the partition was opened.
    pub(crate) fn recovered_producers(&self) -> &[ProducerState] {
        &self.producers
    }

    /// The index of the last segment. Only the writer adds to it.
    pub(crate) fn unfinished(&self) -> MutexGuard<'_, Builder> {
        self.unfinished.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a segment that lies below `needed` was finished since the last compaction.
    pub(crate) fn has_more_to_compact(&self, needed: u64) -> bool {
        let compacted = self.compacted.load(Ordering::Relaxed);
        let ends =
            self.segments().iter().skip(1).map(|next| next.extent.base_offset).filter(|end| *end <= needed).max();
        ends.is_some_and(|end| end > compacted)
    }

    /// The first offset of the unfinished segment.
    pub(crate) fn last_segment(&self) -> u64 {
        self.segments().last().map_or(0, |last| last.extent.base_offset)
    }

    /// Records that compaction has processed every segment before `end`.
    pub(crate) fn set_compacted(&self, end: u64) {
        self.compacted.store(end, Ordering::Relaxed);
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Makes newly synced segments visible to readers: the last segment has grown or has successors.
    pub(crate) fn extend(&self, synced: Vec<Segment>, next_offset: u64) {
        let mut segments = self.segments.write().unwrap_or_else(PoisonError::into_inner);
        for segment in synced {
            match segments.last_mut() {
                Some(last) if last.extent.base_offset == segment.extent.base_offset => *last = segment,
                _ => segments.push(segment),
            }
        }
        drop(segments);
        self.next_offset.store(next_offset, Ordering::Release);
        self.progress.send_replace(());
    }

    /// Hides the segments before `start` from readers, before they are removed.
    pub(crate) fn remove_before(&self, start: u64) {
        let mut segments = self.segments.write().unwrap_or_else(PoisonError::into_inner);
        segments.retain(|segment| segment.extent.base_offset >= start);
    }

    /// Replaces the segment that starts at the same offset.
    pub(crate) fn replace(&self, segment: Segment) {
        let mut segments = self.segments.write().unwrap_or_else(PoisonError::into_inner);
        let same = |other: &&mut Segment| other.extent.base_offset == segment.extent.base_offset;
        if let Some(old) = segments.iter_mut().find(same) {
            *old = segment;
        }
    }

    pub(crate) fn segments(&self) -> RwLockReadGuard<'_, Vec<Segment>> {
        self.segments.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Extents for Partition {
    fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    fn partition(&self) -> u32 {
        self.number
    }

    fn directory(&self) -> &Path {
        &self.directory
    }

    fn segment_for(&self, offset: u64) -> Result<Option<ReadableSegment>> {
        let segments = self.segments();
        let index = segments.partition_point(|segment| segment.extent.base_offset <= offset).saturating_sub(1);
        let end_state = if index + 1 == segments.len() { EndState::Synced } else { EndState::Final };
        Ok(segments.get(index).map(|segment| ReadableSegment { extent: segment.extent, end_state }))
    }

    fn position_for(&self, header: &SegmentHeader, offset: u64) -> Option<BatchPosition> {
        let (segments, base_offset) = (self.segments(), header.base_offset);
        let segment = segments.iter().rfind(|segment| segment.extent.base_offset == base_offset)?;
        match &segment.index {
            // The file may just have been rewritten.
            Some(index) if index.salt() != header.salt => None,
            Some(index) => index.position_for(offset),
            None => {
                let unfinished = self.unfinished();
                if unfinished.base_offset() == base_offset { unfinished.position_for(offset) } else { None }
            }
        }
    }

    fn offset_near_time(&self, time: i64) -> u64 {
        let position = |segment: &Segment| match &segment.index {
            Some(index) => index.position_at_time(time).map(|position| position.offset),
            None => {
                let unfinished = self.unfinished();
                if unfinished.base_offset() != segment.extent.base_offset {
                    return Some(segment.extent.base_offset);
                }
                unfinished.position_at_time(time).map(|position| position.offset)
            }
        };
        // The index includes unsynced batches, which readers must not see.
        self.segments().iter().find_map(position).unwrap_or(u64::MAX).min(self.next_offset())
    }

    fn end(&self) -> Option<u64> {
        Some(self.next_offset())
    }
}
