//! Reads the batches of one segment in order, and reports defects.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use landfall_core::{Error, ErrorKind, Result};

use crate::disk::{self, Access, Disk, File};
use crate::durable::{damaged, failed};
use crate::storage::batch::{self, Batch, BatchHeader, Defect};
use crate::storage::segment::{self, SegmentHeader};

/// Bytes per read, unless one batch is larger.
pub(crate) const CHUNK_BYTES: usize = 256 * 1024;
/// A batch that is cut by the end of a chunk is read twice, so a chunk should hold several batches. The limit bounds
/// the memory that one message can keep alive.
const BATCHES_PER_CHUNK: usize = 4;
const LARGE_CHUNK_BYTES: usize = 1024 * 1024;

/// A read position before a batch of one segment.
#[derive(Debug)]
pub(crate) struct SegmentReader {
    file: Arc<dyn File>,
    path: PathBuf,
    header: SegmentHeader,
    position: u64,
    next_offset: u64,
    /// Bytes that were read and not yet returned; they start at `position`.
    ahead: Bytes,
    chunk_bytes: usize,
    final_bytes: Option<u64>,
}

/// The result of reading one batch.
#[derive(Debug)]
pub(crate) enum NextBatch {
    Batch(Batch),
    /// The segment ends here.
    End,
    Bad(Defect),
}

impl SegmentReader {
    /// Opens the segment in `directory`, positioned before its first batch.
    pub(crate) fn open(disk: &dyn Disk, directory: &Path, partition: u32, base_offset: u64) -> Result<Self> {
        let path = segment::path(directory, base_offset);
        let file = disk.open(&path, Access::Read).map_err(failed("open", &path))?;
        let header = SegmentHeader::read(&*file, &path, partition, base_offset)?;
        Ok(Self::new(file, path, header))
    }

    /// Reads `file` from its first batch. The file has this header, or had it before it was damaged.
    pub(crate) fn new(file: Arc<dyn File>, path: PathBuf, header: SegmentHeader) -> Self {
        let (position, next_offset) = (segment::HEADER_BYTES as u64, header.base_offset);
        let (ahead, chunk_bytes, final_bytes) = (Bytes::new(), CHUNK_BYTES, None);
        Self { file, path, header, position, next_offset, ahead, chunk_bytes, final_bytes }
    }

    /// Moves to `position`, where a batch that starts with `offset` was found.
    pub(crate) fn resume_at(&mut self, position: u64, offset: u64) {
        self.ahead = Bytes::new();
        (self.position, self.next_offset) = (position, offset);
    }

    /// Skips ahead to the batch at `position`, which starts with `offset`.
    pub(crate) fn skip_to(&mut self, position: u64, offset: u64) {
        if position > self.position {
            self.ahead = Bytes::new();
            (self.position, self.next_offset) = (position, offset);
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn header(&self) -> &SegmentHeader {
        &self.header
    }

    /// The position of the next batch in the file.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The offset that the next batch must start with.
    pub(crate) fn next_offset(&self) -> u64 {
        self.next_offset
    }

    pub(crate) fn file_bytes(&self) -> Result<u64> {
        self.file.length().map_err(failed("read the size of", &self.path))
    }

    /// The size of the file, read once; only for a file that no longer changes.
    pub(crate) fn final_bytes(&mut self) -> Result<u64> {
        if self.final_bytes.is_none() {
            self.final_bytes = Some(self.file_bytes()?);
        }
        Ok(self.final_bytes.unwrap_or_default())
    }

    /// Returns the next batch within the first `end` bytes of the file. Advances only if it returns a batch.
    pub(crate) fn next(&mut self, end: u64) -> Result<NextBatch> {
        if self.position == end {
            return Ok(NextBatch::End);
        }
        let header = match self.check_batch(end)? {
            Ok(header) => header,
            Err(defect) => {
                // The bytes may be half of a write in progress, so the next attempt reads them again.
                self.ahead = Bytes::new();
                return Ok(NextBatch::Bad(defect));
            }
        };
        if !header.is_supported() {
            let (path, position) = (self.path.display(), self.position);
            let sentence = format!("{path} holds a batch at byte {position} that only newer builds can read");
            return Err(Error::new(ErrorKind::Unsupported, sentence));
        }
        let records = self.ahead.slice(batch::HEADER_BYTES..header.total_bytes() - 1);
        let Some(batch) = Batch::split(header, self.position, records) else {
            return Err(self.damaged("the records do not match the batch's header, although its checksum is right"));
        };
        self.ahead.advance(header.total_bytes());
        self.position += header.total_bytes() as u64;
        self.next_offset = header.next_offset();
        Ok(NextBatch::Batch(batch))
    }

    /// Checks the batch at the position. If it is valid, `ahead` holds all of it afterwards.
    fn check_batch(&mut self, end: u64) -> Result<std::result::Result<BatchHeader, Defect>> {
        self.fill_ahead(batch::HEADER_BYTES, end)?;
        let header = match BatchHeader::read(&self.ahead, self.header.salt) {
            Ok(header) => header,
            Err(defect) => return Ok(Err(defect)),
        };
        self.fill_ahead(header.total_bytes(), end)?;
        if let Err(defect) = header.verify(self.header.salt, &self.ahead, self.position) {
            return Ok(Err(defect));
        }
        let (expected, found) = (self.next_offset, header.base_offset);
        Ok(if expected == found { Ok(header) } else { Err(Defect::Offset { expected, found }) })
    }

    /// Fills `ahead` with at least `wanted` bytes, if the segment has as many.
    fn fill_ahead(&mut self, wanted: usize, end: u64) -> Result<()> {
        let left = end.saturating_sub(self.position);
        if self.ahead.len() >= wanted || self.ahead.len() as u64 == left {
            return Ok(());
        }
        // Never allocate for a length that exceeds the file.
        let several = (BATCHES_PER_CHUNK * wanted).min(LARGE_CHUNK_BYTES).max(wanted);
        self.chunk_bytes = self.chunk_bytes.max(several.min(left as usize));
        self.ahead = self.read_at(self.position, left.min(self.chunk_bytes as u64) as usize)?.into();
        Ok(())
    }

    /// Reads up to `length` bytes; fewer only at the end of the file.
    pub(crate) fn read_at(&self, position: u64, length: usize) -> Result<Vec<u8>> {
        disk::read(&*self.file, position, length).map_err(failed("read", &self.path))
    }

    /// Reads the bytes from the position to `end`.
    pub(crate) fn rest(&self, end: u64) -> Result<Vec<u8>> {
        self.read_at(self.position, end.saturating_sub(self.position) as usize)
    }

    /// Whether a later batch of this segment proves that the one at the position was synced. Then its defect is damage
    /// and not an unfinished write. `rest` holds the bytes from the position on.
    ///
    /// Tests every byte that could start a batch, because the length of a bad batch cannot be trusted.
    pub(crate) fn was_synced(&self, rest: &[u8]) -> bool {
        let proves_sync = |header: &BatchHeader| {
            header.synced_before > self.next_offset && header.base_offset >= header.synced_before
        };
        self.batches_in(rest).any(|(_, header)| proves_sync(&header))
    }

    /// Finds every whole batch in `rest`, the bytes from the position on, at any byte. Yields its index in `rest` and
    /// its header.
    pub(crate) fn batches_in<'a>(&'a self, rest: &'a [u8]) -> impl Iterator<Item = (usize, BatchHeader)> + 'a {
        let magic = batch::MAGIC;
        let begins = move |at: &usize| rest[*at] == magic[0] && rest[*at..].starts_with(&magic);
        (0..rest.len()).filter(begins).filter_map(|at| {
            let header = BatchHeader::read(&rest[at..], self.header.salt).ok()?;
            header.verify(self.header.salt, &rest[at..], self.position + at as u64).ok()?;
            Some((at, header))
        })
    }

    /// Returns the error for a defect at the position.
    pub(crate) fn damaged(&self, what: impl std::fmt::Display) -> Error {
        damaged(&self.path, self.position, what)
    }
}
