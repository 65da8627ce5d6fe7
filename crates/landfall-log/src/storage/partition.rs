//! One partition of an open log, as its writer and its readers share it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use landfall_core::{Result, Timestamp, TopicName};
use tokio::sync::watch;

use crate::disk::Disk;
use crate::storage::cursor::{Extents, Readable, Tail};
use crate::storage::index::{Builder, IndexFile, Place};
use crate::storage::segment::{Extent, SegmentHeader};
use crate::write::producers::ProducerState;

/// What of a partition was synced. The writer extends it after each sync; readers see nothing beyond it.
#[derive(Debug)]
pub(crate) struct Partition {
    disk: Arc<dyn Disk>,
    id: u64,
    topic: TopicName,
    number: u32,
    directory: PathBuf,
    segments: RwLock<Vec<Segment>>,
    /// The index of the last segment, which is ahead of the readers: it knows what is being written, and may be that
    /// of a segment that they do not see yet.
    unfinished: Mutex<Builder>,
    /// How far producers had come when it was opened.
    producers: Vec<ProducerState>,
    next_offset: AtomicU64,
    is_deleted: AtomicBool,
    /// Everything below was looked at by compaction.
    compacted: AtomicU64,
    /// Told after each extension; shared by the partitions of a topic.
    progress: Arc<watch::Sender<()>>,
}

/// A segment, as far as it was synced.
#[derive(Debug, Clone)]
pub(crate) struct Segment {
    pub(crate) extent: Extent,
    pub(crate) created: Timestamp,
    /// `None` while it is the last.
    pub(crate) index: Option<Arc<IndexFile>>,
}

/// What was found in a partition's files.
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

/// Where a partition is, and whom to tell when it has more.
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

    /// Tells it from every other partition in this process.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn topic(&self) -> &TopicName {
        &self.topic
    }

    /// Where its messages begin: what was before is gone by now.
    pub(crate) fn start_offset(&self) -> u64 {
        self.segments().first().map_or(0, |segment| segment.extent.base_offset)
    }

    pub(crate) fn next_offset(&self) -> u64 {
        self.next_offset.load(Ordering::Acquire)
    }

    pub(crate) fn segment_count(&self) -> usize {
        self.segments().len()
    }

    /// Whether its topic was deleted: its files are gone, or somebody else's.
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

    /// How far producers had come when it was opened.
    pub(crate) fn recovered_producers(&self) -> &[ProducerState] {
        &self.producers
    }

    /// The index of the last segment. Only the writer adds to it.
    pub(crate) fn unfinished(&self) -> MutexGuard<'_, Builder> {
        self.unfinished.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a segment was finished since compaction last looked, of which everything is below `needed`.
    pub(crate) fn has_more_to_compact(&self, needed: u64) -> bool {
        let compacted = self.compacted.load(Ordering::Relaxed);
        let ends =
            self.segments().iter().skip(1).map(|next| next.extent.base_offset).filter(|end| *end <= needed).max();
        ends.is_some_and(|end| end > compacted)
    }

    /// Where the segment begins that is not finished.
    pub(crate) fn last_segment(&self) -> u64 {
        self.segments().last().map_or(0, |last| last.extent.base_offset)
    }

    /// Compaction has looked at every segment before `end`.
    pub(crate) fn set_compacted(&self, end: u64) {
        self.compacted.store(end, Ordering::Relaxed);
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Lets readers see what was just synced: the last segment has grown, or has successors.
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

    /// Segments before `start` are about to be removed: nobody may begin to read them.
    pub(crate) fn remove_before(&self, start: u64) {
        let mut segments = self.segments.write().unwrap_or_else(PoisonError::into_inner);
        segments.retain(|segment| segment.extent.base_offset >= start);
    }

    /// Puts `segment` in the place of the one that begins with the same offset.
    pub(crate) fn replace(&self, segment: Segment) {
        let mut segments = self.segments.write().unwrap_or_else(PoisonError::into_inner);
        let same = |other: &&mut Segment| other.extent.base_offset == segment.extent.base_offset;
        if let Some(place) = segments.iter_mut().find(same) {
            *place = segment;
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

    fn segment_for(&self, offset: u64) -> Result<Option<Readable>> {
        let segments = self.segments();
        let index = segments.partition_point(|segment| segment.extent.base_offset <= offset).saturating_sub(1);
        let tail = if index + 1 == segments.len() { Tail::Synced } else { Tail::Final };
        Ok(segments.get(index).map(|segment| Readable { extent: segment.extent, tail }))
    }

    fn place_for(&self, header: &SegmentHeader, offset: u64) -> Option<Place> {
        let (segments, base_offset) = (self.segments(), header.base_offset);
        let segment = segments.iter().rfind(|segment| segment.extent.base_offset == base_offset)?;
        match &segment.index {
            // The file may have been rewritten a moment ago.
            Some(index) if index.salt() != header.salt => None,
            Some(index) => index.position_for(offset),
            None => {
                let unfinished = self.unfinished();
                if unfinished.base_offset() == base_offset { unfinished.position_for(offset) } else { None }
            }
        }
    }

    fn near_time(&self, time: i64) -> u64 {
        let place = |segment: &Segment| match &segment.index {
            Some(index) => index.position_at_time(time).map(|place| place.offset),
            None => {
                let unfinished = self.unfinished();
                if unfinished.base_offset() != segment.extent.base_offset {
                    return Some(segment.extent.base_offset);
                }
                unfinished.position_at_time(time).map(|place| place.offset)
            }
        };
        // What is written and not synced yet has a place, and is not there for readers.
        self.segments().iter().find_map(place).unwrap_or(u64::MAX).min(self.next_offset())
    }

    fn end(&self) -> Option<u64> {
        Some(self.next_offset())
    }
}
