//! One partition of an open log, as its writer and its readers share it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use landfall_core::Result;
use tokio::sync::watch;

use crate::cursor::{Extents, Readable, Tail};
use crate::disk::Disk;
use crate::segment::Extent;

/// What of a partition was synced. The writer extends it after each sync; readers see nothing beyond it.
#[derive(Debug)]
pub(crate) struct Partition {
    disk: Arc<dyn Disk>,
    id: u64,
    number: u32,
    directory: PathBuf,
    segments: RwLock<Vec<Extent>>,
    next_offset: AtomicU64,
    is_deleted: AtomicBool,
    /// Told after each extension; shared by the partitions of a topic.
    progress: Arc<watch::Sender<()>>,
}

/// What recovery, or the writer, knows to be synced.
#[derive(Debug, Default)]
pub(crate) struct Synced {
    pub(crate) segments: Vec<Extent>,
    pub(crate) next_offset: u64,
}

impl Partition {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        number: u32,
        directory: PathBuf,
        synced: Synced,
        progress: Arc<watch::Sender<()>>,
    ) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let next_offset = AtomicU64::new(synced.next_offset);
        let (segments, is_deleted) = (RwLock::new(synced.segments), AtomicBool::new(false));
        Self { disk, id, number, directory, segments, next_offset, is_deleted, progress }
    }

    /// Tells it from every other partition in this process.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn next_offset(&self) -> u64 {
        self.next_offset.load(Ordering::Acquire)
    }

    /// The offset of the oldest record that is kept.
    pub(crate) fn start_offset(&self) -> u64 {
        self.segments().first().map_or(0, |segment| segment.base_offset)
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
        self.segments().iter().map(|segment| segment.bytes).sum()
    }

    pub(crate) fn last_segment(&self) -> Option<Extent> {
        self.segments().last().copied()
    }

    /// Lets readers see what was just synced: the last segment has grown, or has successors.
    pub(crate) fn extend(&self, synced: &Synced) {
        let mut segments = self.segments.write().unwrap_or_else(PoisonError::into_inner);
        for extent in &synced.segments {
            match segments.last_mut() {
                Some(last) if last.base_offset == extent.base_offset => *last = *extent,
                _ => segments.push(*extent),
            }
        }
        drop(segments);
        self.next_offset.store(synced.next_offset, Ordering::Release);
        self.progress.send_replace(());
    }

    fn segments(&self) -> RwLockReadGuard<'_, Vec<Extent>> {
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
        let index = segments.partition_point(|segment| segment.base_offset <= offset).saturating_sub(1);
        let tail = if index + 1 == segments.len() { Tail::Synced } else { Tail::Final };
        Ok(segments.get(index).map(|&extent| Readable { extent, tail }))
    }

    fn end(&self) -> Option<u64> {
        Some(self.next_offset())
    }
}
