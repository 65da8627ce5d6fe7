//! Scans a whole segment, continuing past damage.
//!
//! Nothing in a damaged batch can be trusted, least of all its length. So the scan searches for the next complete
//! batch of this segment, which the salt identifies, with a plausible offset.

use landfall_core::{ErrorKind, Result};

use crate::storage::batch::{self, Batch, BatchHeader};
use crate::storage::cursor::READ_ATTEMPTS;
use crate::storage::reader::{NextBatch, SegmentReader};

/// Bytes searched at a time.
const WINDOW_BYTES: usize = 1024 * 1024;

/// The next piece of a segment.
#[derive(Debug)]
pub(crate) enum Piece {
    Batch(Batch),
    /// Damage, up to the next good batch.
    Hole(Hole),
    /// The unfinished tail of the last segment, from a crash or a write in progress: its size, without trailing zeros.
    Unfinished {
        bytes: u64,
    },
    /// A good batch that overlaps the offsets of the next segment: two histories of one log.
    Overlap(Hole),
    End,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hole {
    /// The position of the damage in the file.
    pub(crate) position: u64,
    /// The first missing offset.
    pub(crate) first_offset: u64,
    /// The offset after the last missing one; `None` if unknown.
    pub(crate) next_offset: Option<u64>,
    pub(crate) what: String,
}

/// A scan position in a segment.
#[derive(Debug)]
pub(crate) struct SegmentScan {
    reader: SegmentReader,
    /// The size of the file.
    end: u64,
    /// The first offset of the next segment; `None` for the last one.
    limit: Option<u64>,
    is_done: bool,
}

impl SegmentScan {
    pub(crate) fn new(reader: SegmentReader, limit: Option<u64>) -> Result<Self> {
        let end = reader.file_bytes()?;
        Ok(Self { reader, end, limit, is_done: false })
    }

    /// The number of bytes scanned.
    pub(crate) fn position(&self) -> u64 {
        if self.is_done { self.end } else { self.reader.position() }
    }

    pub(crate) fn next(&mut self) -> Result<Piece> {
        if self.is_done {
            return Ok(Piece::End);
        }
        let what = match self.read_batch()? {
            ReadAttempt::Batch(batch) => return Ok(self.check_overlap(batch)),
            ReadAttempt::End => return Ok(self.end()),
            ReadAttempt::Bad { what, is_unfinished: true } if self.limit.is_none() => {
                let rest = self.reader.rest(self.end)?;
                let written = rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                if written == 0 || !self.reader.was_synced(&rest) {
                    self.is_done = true;
                    return Ok(Piece::Unfinished { bytes: written as u64 });
                }
                // The later batch was read later: everything may have been written meanwhile.
                match self.read_batch()? {
                    ReadAttempt::Batch(batch) => return Ok(self.check_overlap(batch)),
                    ReadAttempt::End => return Ok(self.end()),
                    ReadAttempt::Bad { .. } => format!("{what}, but a later batch proves that it was synced"),
                }
            }
            ReadAttempt::Bad { what, .. } => what,
        };
        self.hole(what).map(Piece::Hole)
    }

    fn read_batch(&mut self) -> Result<ReadAttempt> {
        let (mut found, mut attempts) = (self.reader.next(self.end), 1);
        // Another process may be writing the last segment: a bad batch may be half written, or reach beyond the known
        // end. Report it only if it stays bad while the file size stays the same.
        while let (Ok(NextBatch::Bad(_)), None) = (&found, self.limit) {
            let end = self.reader.file_bytes()?.max(self.reader.position());
            if end == self.end && attempts == READ_ATTEMPTS {
                break;
            }
            attempts = if end == self.end { attempts + 1 } else { 1 };
            self.end = end;
            found = self.reader.next(end);
        }
        match found {
            Ok(NextBatch::Batch(batch)) => Ok(ReadAttempt::Batch(batch)),
            Ok(NextBatch::End) => Ok(ReadAttempt::End),
            Ok(NextBatch::Bad(defect)) => {
                Ok(ReadAttempt::Bad { what: defect.to_string(), is_unfinished: defect.is_unfinished() })
            }
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                let what = "the records do not match the batch's header, although its checksum is right".to_owned();
                Ok(ReadAttempt::Bad { what, is_unfinished: false })
            }
            Err(error) => Err(error),
        }
    }

    fn check_overlap(&mut self, batch: Batch) -> Piece {
        let (first_offset, next_offset) = (batch.header.base_offset, batch.header.next_offset());
        match self.limit {
            Some(limit) if next_offset > limit => {
                self.is_done = true;
                let what =
                    format!("the batch reaches up to offset {next_offset}, but the next segment starts at {limit}");
                Piece::Overlap(Hole { position: batch.position, first_offset, next_offset: Some(next_offset), what })
            }
            _ => Piece::Batch(batch),
        }
    }

    fn end(&mut self) -> Piece {
        self.is_done = true;
        let first_offset = self.reader.next_offset();
        match self.limit {
            Some(limit) if first_offset < limit => {
                let what = "the segment ends before the next one begins".to_owned();
                Piece::Hole(Hole { position: self.end, first_offset, next_offset: Some(limit), what })
            }
            _ => Piece::End,
        }
    }

    /// Returns the damage at the position, and moves to the next good batch, if there is one.
    fn hole(&mut self, what: String) -> Result<Hole> {
        let (position, first_offset) = (self.reader.position(), self.reader.next_offset());
        let limit = self.limit.unwrap_or(u64::MAX);
        let header = self.reader.read_at(position, batch::HEADER_BYTES)?;
        let header = BatchHeader::read(&header, self.reader.header().salt).ok();
        // If the header is right and only the records are damaged, it says how much is lost and where to continue.
        let header = header.filter(|header| header.base_offset == first_offset && header.next_offset() <= limit);
        let after = header.map(|header| position + header.total_bytes() as u64).filter(|after| *after <= self.end);
        let may_follow = |header: &BatchHeader| header.base_offset >= first_offset && header.next_offset() <= limit;
        let found = find_batch(&self.reader, after.unwrap_or(position), self.end, may_follow)?;
        let next_offset = match found {
            Some((at, found)) => {
                self.reader.resume_at(at, found.base_offset);
                Some(found.base_offset)
            }
            None => {
                self.is_done = true;
                self.limit.or(header.map(|header| header.next_offset()))
            }
        };
        Ok(Hole { position, first_offset, next_offset, what })
    }
}

enum ReadAttempt {
    Batch(Batch),
    End,
    Bad { what: String, is_unfinished: bool },
}

/// Finds the first complete batch that starts between `from` and `end` and satisfies `is_wanted`.
pub(crate) fn find_batch(
    reader: &SegmentReader,
    from: u64,
    end: u64,
    is_wanted: impl Fn(&BatchHeader) -> bool,
) -> Result<Option<(u64, BatchHeader)>> {
    let mut window_begins = from;
    while window_begins + batch::FRAME_BYTES as u64 <= end {
        // The magic of a batch may cross the boundary of two windows.
        let window_bytes = (end - window_begins).min((WINDOW_BYTES + batch::MAGIC.len() - 1) as u64);
        let window = reader.read_at(window_begins, window_bytes as usize)?;
        for at in positions_of(batch::MAGIC, &window) {
            let position = window_begins + at as u64;
            if let Some(header) = batch_at(reader, position, end)?.filter(&is_wanted) {
                return Ok(Some((position, header)));
            }
        }
        window_begins += WINDOW_BYTES as u64;
    }
    Ok(None)
}

fn positions_of(magic: [u8; 4], window: &[u8]) -> impl Iterator<Item = usize> + '_ {
    window.windows(magic.len()).enumerate().filter(move |(_, bytes)| **bytes == magic).map(|(at, _)| at)
}

fn batch_at(reader: &SegmentReader, position: u64, end: u64) -> Result<Option<BatchHeader>> {
    let salt = reader.header().salt;
    let bytes = reader.read_at(position, batch::HEADER_BYTES)?;
    let header = BatchHeader::read(&bytes, salt).ok();
    let Some(header) = header.filter(|header| position + header.total_bytes() as u64 <= end) else { return Ok(None) };
    let bytes = reader.read_at(position, header.total_bytes())?;
    Ok(header.verify(salt, &bytes, position).is_ok().then_some(header))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::SystemDisk;
    use crate::storage::segment::{self, SegmentHeader};

    fn batch(base_offset: u64, salt: u32, position: u64) -> Vec<u8> {
        let mut bytes = vec![0; batch::HEADER_BYTES];
        BatchHeader::lost(base_offset, 1, 0).seal(&mut bytes, salt, position);
        bytes
    }

    #[test]
    fn next_batch_is_found_across_window_boundaries() {
        let folder = tempfile::tempdir().unwrap();
        let header = SegmentHeader::new(0, 0, None);
        let path = segment::path(folder.path(), 0);
        for rubbish in WINDOW_BYTES - 4..WINDOW_BYTES + 2 {
            let position = segment::HEADER_BYTES as u64;
            let mut bytes = [&header.encode()[..], &batch(0, header.salt, position)].concat();
            let hole_begins = bytes.len() as u64;
            bytes.resize(bytes.len() + rubbish, b'L');
            let position = bytes.len() as u64;
            bytes.extend(batch(5, header.salt, position));
            std::fs::write(&path, &bytes).unwrap();

            let reader = SegmentReader::open(&SystemDisk, folder.path(), 0, 0).unwrap();
            let mut scan = SegmentScan::new(reader, Some(6)).unwrap();
            assert!(matches!(scan.next().unwrap(), Piece::Batch(batch) if batch.header.base_offset == 0));
            let Piece::Hole(hole) = scan.next().unwrap() else { panic!("expected a hole") };
            assert_eq!((hole.position, hole.first_offset, hole.next_offset), (hole_begins, 1, Some(5)));
            assert!(matches!(scan.next().unwrap(), Piece::Batch(batch) if batch.position == position));
            assert!(matches!(scan.next().unwrap(), Piece::End));
        }
    }

    #[test]
    fn batch_that_overlaps_the_next_segment_is_not_damage() {
        let folder = tempfile::tempdir().unwrap();
        let header = SegmentHeader::new(0, 0, None);
        let bytes = [&header.encode()[..], &batch(0, header.salt, segment::HEADER_BYTES as u64)].concat();
        std::fs::write(segment::path(folder.path(), 0), bytes).unwrap();
        let reader = SegmentReader::open(&SystemDisk, folder.path(), 0, 0).unwrap();
        let mut scan = SegmentScan::new(reader, Some(0)).unwrap();
        assert!(matches!(scan.next().unwrap(), Piece::Overlap(hole) if hole.next_offset == Some(1)));
        assert!(matches!(scan.next().unwrap(), Piece::End));
    }
}
