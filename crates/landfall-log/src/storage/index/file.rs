//! An index file: written atomically, fully verified when opened, then read page by page.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use landfall_core::{MessageId, Result};
use tracing::warn;

use super::entry::{Id, number};
use super::header::{HEADER_BYTES, Header};
use super::positions::{BatchPosition, PositionIndex};
use super::table::{Source, Table, TableStart};
use super::{ProducerRange, path};
use crate::disk::{self, Access, Disk, File};
use crate::durable::{self, damaged, failed};
use crate::write::producers::{ProducerId, ProducerState};

/// The first table follows the header.
const FIRST: TableStart = TableStart { position: HEADER_BYTES as u64, page: 0 };

/// The final segment that an index is written for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IndexedSegment {
    pub(crate) salt: u32,
    pub(crate) partition: u32,
    pub(crate) end_offset: u64,
    pub(crate) segment_bytes: u64,
}

/// The segment that an index must describe to be usable.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExpectedSegment {
    pub(crate) salt: u32,
    pub(crate) partition: u32,
    /// `None` if only the index knows.
    pub(crate) end_offset: Option<u64>,
    pub(crate) segment_bytes: u64,
}

/// The content of an index file, each table sorted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Content<'a> {
    pub(super) positions: &'a PositionIndex,
    pub(super) ids: &'a [Id],
    pub(super) ranges: &'a [ProducerRange],
    pub(super) producers: &'a [ProducerState],
}

/// The index of a finished segment.
///
/// The file is opened for each lookup and not kept open: a log may have more segments than a process may have open
/// files.
#[derive(Debug)]
pub(crate) struct IndexFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    header: Header,
    positions: PositionIndex,
    ids: Table<Id>,
    ranges: Table<ProducerRange>,
    producers: Table<ProducerState>,
}

impl IndexFile {
    pub(super) fn write(
        disk: &Arc<dyn Disk>,
        directory: &Path,
        base_offset: u64,
        segment: IndexedSegment,
        content: Content<'_>,
    ) -> Result<Self> {
        let IndexedSegment { salt, partition, end_offset, segment_bytes } = segment;
        let Content { positions, ids, ranges, producers } = content;
        let header = Header {
            salt,
            partition,
            base_offset,
            end_offset,
            segment_bytes,
            latest_time: positions.latest_time,
            positions: positions.entries.len() as u32,
            ids: ids.len() as u32,
            ranges: ranges.len() as u32,
            producers: producers.len() as u32,
        };
        let mut bytes = Vec::with_capacity(header.file_bytes() as usize);
        bytes.extend_from_slice(&header.encode());
        let mut start = FIRST;
        Table::write(&positions.entries, salt, &mut start, &mut bytes);
        let ids = Table::write(ids, salt, &mut start, &mut bytes);
        let ranges = Table::write(ranges, salt, &mut start, &mut bytes);
        let producers = Table::write(producers, salt, &mut start, &mut bytes);
        let path = path(directory, base_offset);
        durable::replace(&**disk, &path, &bytes)?;
        Ok(Self { disk: Arc::clone(disk), path, header, positions: positions.clone(), ids, ranges, producers })
    }

    /// Opens and verifies the index of the segment that starts at `base_offset`. `None` if it must be rebuilt: it is
    /// missing or, with a warning, it is damaged or describes another segment.
    pub(crate) fn open(
        disk: &Arc<dyn Disk>,
        directory: &Path,
        base_offset: u64,
        expected: ExpectedSegment,
    ) -> Result<Option<Self>> {
        let path = path(directory, base_offset);
        let file = match disk.open(&path, Access::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed("open", &path)(error)),
        };
        // An unreadable part of the file counts as damage: the whole index can be rebuilt.
        match Self::read(disk, &*file, &path, base_offset, expected) {
            Ok(index) => Ok(Some(index)),
            Err(error) => {
                warn!(path = %path.display(), %error, "index unusable, rebuilding it from its segment");
                Ok(None)
            }
        }
    }

    fn read(
        disk: &Arc<dyn Disk>,
        file: &dyn File,
        path: &Path,
        base_offset: u64,
        expected: ExpectedSegment,
    ) -> Result<Self> {
        let bytes = disk::read(file, 0, HEADER_BYTES).map_err(failed("read", path))?;
        let header = Header::decode(&bytes).map_err(|why| damaged(path, 0, why))?;
        let found = (header.salt, header.partition, header.base_offset, header.segment_bytes);
        if found != (expected.salt, expected.partition, base_offset, expected.segment_bytes)
            || expected.end_offset.is_some_and(|end| end != header.end_offset)
        {
            return Err(damaged(path, 0, "it describes another segment"));
        }
        let file_bytes = file.length().map_err(failed("read the size of", path))?;
        if file_bytes != header.file_bytes() {
            let sentence = format!("its tables have {} bytes and the file has {file_bytes}", header.file_bytes());
            return Err(damaged(path, 0, sentence));
        }
        let (source, mut start) = (Source { file, path, salt: header.salt }, FIRST);
        let mut positions = PositionIndex { entries: Vec::new(), latest_time: header.latest_time };
        Table::<BatchPosition>::read(source, &mut start, header.positions, |entry| positions.entries.push(entry))?;
        let ids = Table::read(source, &mut start, header.ids, |_| ())?;
        let ranges = Table::read(source, &mut start, header.ranges, |_| ())?;
        let producers = Table::read(source, &mut start, header.producers, |_| ())?;
        Ok(Self { disk: Arc::clone(disk), path: path.to_owned(), header, positions, ids, ranges, producers })
    }

    /// The salt of the segment that it describes.
    pub(crate) fn salt(&self) -> u32 {
        self.header.salt
    }

    pub(crate) fn base_offset(&self) -> u64 {
        self.header.base_offset
    }

    /// The offset after the segment's last record.
    pub(crate) fn end_offset(&self) -> u64 {
        self.header.end_offset
    }

    /// The latest append time of the segment; `None` if it has no batches.
    pub(crate) fn latest_time(&self) -> Option<i64> {
        (!self.positions.entries.is_empty()).then_some(self.header.latest_time)
    }

    /// The number of ids.
    pub(crate) fn id_count(&self) -> u32 {
        self.ids.len()
    }

    /// Calls `each` with every id and its offset, in order of id. After an error some may have been passed.
    pub(crate) fn for_each_id(&self, mut each: impl FnMut(MessageId, u64)) -> Result<()> {
        let file = self.file()?;
        self.ids.for_each(self.source(&*file), |entry| each(entry.id, self.offset_of(&entry)))
    }

    /// Returns the first offset with this id. Reads one page, and fails if it is damaged by now.
    pub(crate) fn find(&self, id: MessageId) -> Result<Option<u64>> {
        let key = number(id);
        let Some(page) = self.ids.page_before(&key) else { return Ok(None) };
        let file = self.file()?;
        let entry = self.ids.page(self.source(&*file), page)?.at_or_before(&key);
        Ok(entry.filter(|entry| entry.id == id).map(|entry| self.offset_of(&entry)))
    }

    /// Returns where to start reading for `offset`: at or before its batch. `None` if there is no batch.
    pub(crate) fn position_for(&self, offset: u64) -> Option<BatchPosition> {
        self.positions.for_offset(offset)
    }

    /// Returns where to start reading for the first batch appended at or after `time`. `None` if there is none.
    pub(crate) fn position_at_time(&self, time: i64) -> Option<BatchPosition> {
        self.positions.at_time(time)
    }

    /// Returns the offsets of the producer's messages from this sequence on, as long as they follow without a gap.
    /// `None` if the sequence is not in this segment. Reads one page.
    pub(crate) fn offsets_from(&self, producer: ProducerId, sequence: u64) -> Result<Option<Range<u64>>> {
        let key = (producer, sequence);
        let Some(page) = self.ranges.page_before(&key) else { return Ok(None) };
        let file = self.file()?;
        let range = self.ranges.page(self.source(&*file), page)?.at_or_before(&key);
        Ok(range.filter(|range| range.producer == producer).and_then(|range| range.offsets_from(sequence)))
    }

    /// Returns the state of each producer at the segment's end, sorted by producer.
    pub(crate) fn producers(&self) -> Result<Vec<ProducerState>> {
        let (file, mut producers) = (self.file()?, Vec::new());
        self.producers.for_each(self.source(&*file), |state| producers.push(state))?;
        Ok(producers)
    }

    /// The size of the file.
    #[cfg(test)]
    pub(crate) fn file_bytes(&self) -> u64 {
        self.header.file_bytes()
    }

    /// Memory use, approximately.
    pub(crate) fn memory_bytes(&self) -> usize {
        let tables = self.ids.memory_bytes() + self.ranges.memory_bytes() + self.producers.memory_bytes();
        size_of::<Self>() + self.positions.entries.capacity() * size_of::<BatchPosition>() + tables
    }

    fn offset_of(&self, entry: &Id) -> u64 {
        self.header.base_offset.saturating_add(u64::from(entry.delta))
    }

    fn file(&self) -> Result<Arc<dyn File>> {
        self.disk.open(&self.path, Access::Read).map_err(failed("open", &self.path))
    }

    fn source<'a>(&'a self, file: &'a dyn File) -> Source<'a> {
        Source { file, path: &self.path, salt: self.header.salt }
    }
}
