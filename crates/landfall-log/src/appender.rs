//! Writes batches to the end of one partition. Only the writer's thread has appenders.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use landfall_core::Result;

use crate::batch::{self, BatchHeader};
use crate::cursor::Extents;
use crate::disk::{Access, File};
use crate::durable::failed;
use crate::options::Options;
use crate::partition::{Partition, Synced};
use crate::segment::{self, Extent, SegmentHeader};

/// Records of one publish call for one partition, encoded one after the other.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) partition: Arc<Partition>,
    pub(crate) records: Vec<u8>,
    pub(crate) count: u32,
    pub(crate) max_timestamp: i64,
    /// The offset of the first record, once it is appended.
    pub(crate) base_offset: u64,
}

/// The end of a partition. After an error it must not be used again: nobody knows what was written.
#[derive(Debug)]
pub(crate) struct Appender {
    partition: Arc<Partition>,
    options: Options,
    segment: Option<OpenSegment>,
    next_offset: u64,
    /// Every offset below it is synced.
    synced_before: u64,
    /// Segments that were finished since readers were last told.
    finished: Vec<Extent>,
}

#[derive(Debug)]
struct OpenSegment {
    file: Arc<dyn File>,
    path: PathBuf,
    salt: u32,
    extent: Extent,
}

impl Appender {
    pub(crate) fn open(partition: Arc<Partition>, options: Options) -> Result<Self> {
        let segment = match partition.last_segment() {
            Some(extent) => Some(OpenSegment::open(&partition, extent)?),
            None => None,
        };
        let next_offset = partition.next_offset();
        let finished = Vec::new();
        Ok(Self { partition, options, segment, next_offset, synced_before: next_offset, finished })
    }

    pub(crate) fn partition(&self) -> &Partition {
        &self.partition
    }

    /// Writes `parts` in this order and gives each its base offset. Nothing is synced, except what a new segment
    /// requires to be.
    pub(crate) fn append(&mut self, parts: &mut [&mut Part]) -> Result<()> {
        let mut rest = parts;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |part: &&&mut Part| {
                bytes += part.records.len();
                bytes <= self.options.batch_limit()
            };
            let merged = rest.iter().take_while(fits).count().max(1);
            let (batch, others) = rest.split_at_mut(merged);
            self.write_batch(batch)?;
            rest = others;
        }
        Ok(())
    }

    /// Makes everything that was appended durable.
    pub(crate) fn sync(&mut self) -> Result<()> {
        if let Some(segment) = &self.segment {
            segment.sync()?;
        }
        self.synced_before = self.next_offset;
        Ok(())
    }

    /// Lets readers see everything that was appended, which must have been synced.
    pub(crate) fn publish(&mut self) {
        let mut segments = std::mem::take(&mut self.finished);
        segments.extend(self.segment.as_ref().map(|segment| segment.extent));
        self.partition.extend(&Synced { segments, next_offset: self.synced_before });
    }

    fn write_batch(&mut self, parts: &mut [&mut Part]) -> Result<()> {
        let length: usize = parts.iter().map(|part| part.records.len()).sum();
        let mut segment = self.segment_with_room(batch::HEADER_BYTES + length)?;
        let header = BatchHeader {
            length: length as u32,
            count: parts.iter().map(|part| part.count).sum(),
            base_offset: self.next_offset,
            synced_before: self.synced_before,
            max_timestamp: parts.iter().map(|part| part.max_timestamp).max().unwrap_or_default(),
        };
        segment.write(&header, parts)?;
        self.segment = Some(segment);
        for part in parts {
            part.base_offset = self.next_offset;
            self.next_offset += u64::from(part.count);
        }
        Ok(())
    }

    /// The current segment if `bytes` more fit into it, else the next one. An empty segment takes anything.
    fn segment_with_room(&mut self, bytes: usize) -> Result<OpenSegment> {
        let previous = match self.segment.take() {
            None => None,
            Some(segment) => {
                let is_empty = segment.extent.bytes == segment::HEADER_BYTES as u64;
                if is_empty || segment.extent.bytes + bytes as u64 <= self.options.segment_bytes {
                    return Ok(segment);
                }
                segment.sync()?;
                self.synced_before = self.next_offset;
                self.finished.push(segment.extent);
                Some(segment.extent)
            }
        };
        let header = SegmentHeader::new(self.partition.partition(), self.next_offset, previous);
        OpenSegment::create(&self.partition, &header)
    }
}

impl OpenSegment {
    fn create(partition: &Partition, header: &SegmentHeader) -> Result<Self> {
        let file = header.create(partition.disk(), partition.directory())?;
        let path = segment::path(partition.directory(), header.base_offset);
        let extent = Extent { base_offset: header.base_offset, bytes: segment::HEADER_BYTES as u64 };
        Ok(Self { file, path, salt: header.salt, extent })
    }

    fn open(partition: &Partition, extent: Extent) -> Result<Self> {
        let path = segment::path(partition.directory(), extent.base_offset);
        let file = partition.disk().open(&path, Access::Write).map_err(failed("open", &path))?;
        let header = SegmentHeader::read(&*file, &path, partition.partition(), extent.base_offset)?;
        Ok(Self { file, path, salt: header.salt, extent })
    }

    fn write(&mut self, header: &BatchHeader, parts: &[&mut Part]) -> Result<()> {
        let records = || parts.iter().map(|part| part.records.as_slice());
        let header_bytes = header.encode(self.salt, records());
        let mut bytes = header_bytes.to_vec();
        records().for_each(|records| bytes.extend_from_slice(records));
        let written = || -> io::Result<()> {
            fail::fail_point!("landfall-log::write", |_| Err(io::Error::other("a failpoint said so")));
            self.file.write_at(&bytes, self.extent.bytes)
        };
        written().map_err(failed("write to", &self.path))?;
        self.extent.bytes += header.total_bytes() as u64;
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        fail::fail_point!("landfall-log::sync", |_| {
            Err(failed("sync", &self.path)(io::Error::other("a failpoint said so")))
        });
        self.file.sync().map_err(failed("sync", &self.path))
    }
}
