//! Reads the batches of one segment, in order, and says what is wrong where there is none.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use landfall_core::{Error, ErrorKind, Result};

use crate::disk::{self, Access, Disk, File};
use crate::durable::{damaged, failed};
use crate::storage::batch::{self, Batch, BatchHeader, Defect};
use crate::storage::segment::{self, SegmentHeader};

/// What is read from the file at a time, unless one batch is larger.
pub(crate) const CHUNK_BYTES: usize = 256 * 1024;
/// What of a chunk is only the half of a batch is read a second time, so a chunk should hold several of them, up to a
/// size that may stay in memory for the sake of one message.
const SEVERAL: usize = 4;
const LARGE_CHUNK_BYTES: usize = 1024 * 1024;

/// Stands before a batch of one segment.
#[derive(Debug)]
pub(crate) struct SegmentReader {
    file: Arc<dyn File>,
    path: PathBuf,
    header: SegmentHeader,
    position: u64,
    next_offset: u64,
    /// What was read and not yet returned; it begins at `position`.
    ahead: Bytes,
    chunk_bytes: usize,
    final_bytes: Option<u64>,
}

/// What stands where a batch could be.
#[derive(Debug)]
pub(crate) enum Found {
    Batch(Batch),
    /// Nothing: the segment ends here.
    End,
    Bad(Defect),
}

impl SegmentReader {
    /// Opens the segment in `directory` and stands before its first batch.
    pub(crate) fn open(disk: &dyn Disk, directory: &Path, partition: u32, base_offset: u64) -> Result<Self> {
        let path = segment::path(directory, base_offset);
        let file = disk.open(&path, Access::Read).map_err(failed("open", &path))?;
        let header = SegmentHeader::read(&*file, &path, partition, base_offset)?;
        Ok(Self::new(file, path, header))
    }

    /// Stands before the first batch of `file`, which has, or once had, this header.
    pub(crate) fn new(file: Arc<dyn File>, path: PathBuf, header: SegmentHeader) -> Self {
        let (position, next_offset) = (segment::HEADER_BYTES as u64, header.base_offset);
        let (ahead, chunk_bytes, final_bytes) = (Bytes::new(), CHUNK_BYTES, None);
        Self { file, path, header, position, next_offset, ahead, chunk_bytes, final_bytes }
    }

    /// Goes to `position`, where a batch was found that begins with `offset`.
    pub(crate) fn resume_at(&mut self, position: u64, offset: u64) {
        self.ahead = Bytes::new();
        (self.position, self.next_offset) = (position, offset);
    }

    /// Goes to the batch at `position`, which begins with `offset`.
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

    /// Where the next batch begins in the file.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The offset that the next batch must begin with.
    pub(crate) fn next_offset(&self) -> u64 {
        self.next_offset
    }

    pub(crate) fn file_bytes(&self) -> Result<u64> {
        self.file.length().map_err(failed("look at", &self.path))
    }

    /// The size of the file, once it does not change any more.
    pub(crate) fn final_bytes(&mut self) -> Result<u64> {
        if self.final_bytes.is_none() {
            self.final_bytes = Some(self.file_bytes()?);
        }
        Ok(self.final_bytes.unwrap_or_default())
    }

    /// The next batch of the first `end` bytes of the file. Stays where it is unless it returns a batch.
    pub(crate) fn next(&mut self, end: u64) -> Result<Found> {
        if self.position == end {
            return Ok(Found::End);
        }
        let header = match self.diagnose(end)? {
            Ok(header) => header,
            Err(defect) => {
                // What was read may be the half of what is just being written; the next try reads it anew.
                self.ahead = Bytes::new();
                return Ok(Found::Bad(defect));
            }
        };
        if !header.is_understood() {
            let (path, position) = (self.path.display(), self.position);
            let sentence = format!("{path} holds a batch at byte {position} of a kind that only newer builds know");
            return Err(Error::new(ErrorKind::Unsupported, sentence));
        }
        let records = self.ahead.slice(batch::HEADER_BYTES..header.total_bytes() - 1);
        let Some(batch) = Batch::split(header, self.position, records) else {
            return Err(self.damaged("the records of the batch do not fill it, although its checksum is right"));
        };
        self.ahead.advance(header.total_bytes());
        self.position += header.total_bytes() as u64;
        self.next_offset = header.next_offset();
        Ok(Found::Batch(batch))
    }

    /// Checks the batch at the position; if it is good, it stands in `ahead` as a whole afterwards.
    fn diagnose(&mut self, end: u64) -> Result<std::result::Result<BatchHeader, Defect>> {
        self.look_ahead(batch::HEADER_BYTES, end)?;
        let header = match BatchHeader::read(&self.ahead, self.header.salt) {
            Ok(header) => header,
            Err(defect) => return Ok(Err(defect)),
        };
        self.look_ahead(header.total_bytes(), end)?;
        if let Err(defect) = header.verify(self.header.salt, &self.ahead, self.position) {
            return Ok(Err(defect));
        }
        let (expected, found) = (self.next_offset, header.base_offset);
        Ok(if expected == found { Ok(header) } else { Err(Defect::Offset { expected, found }) })
    }

    /// Makes `ahead` hold at least `wanted` bytes, if the segment has as many.
    fn look_ahead(&mut self, wanted: usize, end: u64) -> Result<()> {
        let left = end.saturating_sub(self.position);
        if self.ahead.len() >= wanted || self.ahead.len() as u64 == left {
            return Ok(());
        }
        // A length that the file cannot bear out is not worth the memory.
        let several = (SEVERAL * wanted).min(LARGE_CHUNK_BYTES).max(wanted);
        self.chunk_bytes = self.chunk_bytes.max(several.min(left as usize));
        self.ahead = self.read_at(self.position, left.min(self.chunk_bytes as u64) as usize)?.into();
        Ok(())
    }

    /// Up to `length` bytes; fewer only if the file ends.
    pub(crate) fn read_at(&self, position: u64, length: usize) -> Result<Vec<u8>> {
        disk::read(&*self.file, position, length).map_err(failed("read", &self.path))
    }

    /// The bytes from the position up to `end`.
    pub(crate) fn rest(&self, end: u64) -> Result<Vec<u8>> {
        self.read_at(self.position, end.saturating_sub(self.position) as usize)
    }

    /// Whether a later batch of this segment proves that the one at the position had been synced, and so must be
    /// readable: then what is there now is damage and not an unfinished write. `rest` is what stands from there on.
    ///
    /// Looks at every byte that could begin a batch, because the length of a bad batch cannot be trusted.
    pub(crate) fn was_synced(&self, rest: &[u8]) -> bool {
        let testifies = |header: &BatchHeader| {
            header.synced_before > self.next_offset && header.base_offset >= header.synced_before
        };
        self.batches_in(rest).any(|(_, header)| testifies(&header))
    }

    /// Every whole batch in `rest`, which stands at the position, wherever it begins: where from there, and its header.
    pub(crate) fn batches_in<'a>(&'a self, rest: &'a [u8]) -> impl Iterator<Item = (usize, BatchHeader)> + 'a {
        let magic = batch::MAGIC;
        let begins = move |at: &usize| rest[*at] == magic[0] && rest[*at..].starts_with(&magic);
        (0..rest.len()).filter(begins).filter_map(|at| {
            let header = BatchHeader::read(&rest[at..], self.header.salt).ok()?;
            header.verify(self.header.salt, &rest[at..], self.position + at as u64).ok()?;
            Some((at, header))
        })
    }

    /// The error for a defect at the position.
    pub(crate) fn damaged(&self, what: impl std::fmt::Display) -> Error {
        damaged(&self.path, self.position, what)
    }
}
