//! Recovers the salt of a segment whose header is damaged, so that its batches can be verified.
//!
//! There are two sources other than an intact header. The first batch has a known position and a known offset (the file
//! name). Its header checksum is seeded with the salt, and a CRC can be run backwards; the checksum of the whole batch
//! then confirms the result. The other source are the four bytes of the salt itself, if another part of the header is
//! damaged: any batch that verifies with them confirms them.
//!
//! A salt computed from a batch at any other position proves nothing: the batch may be part of a payload.

use std::path::Path;
use std::sync::Arc;

use landfall_core::Result;

use crate::damage::scan;
use crate::disk::File;
use crate::storage::batch::{self, BatchHeader};
use crate::storage::reader::SegmentReader;
use crate::storage::segment::{self, SegmentHeader};

const FIRST_BATCH: u64 = segment::HEADER_BYTES as u64;

/// Returns `partial`, which holds all known fields of the segment's header, with the salt; `None` if it cannot be
/// recovered.
pub(crate) fn header(file: &Arc<dyn File>, path: &Path, partial: SegmentHeader) -> Result<Option<SegmentHeader>> {
    let reader_with = |salt| SegmentReader::new(Arc::clone(file), path.to_owned(), SegmentHeader { salt, ..partial });
    let reader = reader_with(0);
    let end = reader.file_bytes()?;
    if let Some(salt) = computed_salt(&reader, end)? {
        return Ok(Some(SegmentHeader { salt, ..partial }));
    }
    let salt = reader.read_at(8, 4)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
    let Some(salt) = salt else { return Ok(None) };
    let reader = reader_with(salt);
    let is_ours = |batch: &BatchHeader| batch.base_offset >= partial.base_offset;
    let found = scan::find_batch(&reader, FIRST_BATCH, end, is_ours)?;
    Ok(found.map(|_| *reader.header()))
}

fn computed_salt(reader: &SegmentReader, end: u64) -> Result<Option<u32>> {
    let bytes = reader.read_at(FIRST_BATCH, batch::HEADER_BYTES)?;
    let (Some(covered), Some(checksum)) = (bytes.get(8..64), bytes.get(64..).and_then(|rest| rest.first_chunk()))
    else {
        return Ok(None);
    };
    let salt = crc_seed(u32::from_le_bytes(*checksum), covered);
    let Ok(header) = BatchHeader::read(&bytes, salt) else { return Ok(None) };
    if header.base_offset != reader.header().base_offset || header.total_bytes() as u64 > end {
        return Ok(None);
    }
    let batch = reader.read_at(FIRST_BATCH, header.total_bytes())?;
    Ok(header.verify(salt, &batch, FIRST_BATCH).is_ok().then_some(salt))
}

/// Returns the seed of a CRC32C that is `checksum` after `bytes`.
fn crc_seed(checksum: u32, bytes: &[u8]) -> u32 {
    /// The polynomial, reflected. The highest bit shows whether it was applied in a step.
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let step_back = |state: u32| if state >> 31 == 1 { ((state ^ POLYNOMIAL) << 1) | 1 } else { state << 1 };
    let before = |state, byte: &u8| (0..8).fold(state, |state, _| step_back(state)) ^ u32::from(*byte);
    !bytes.iter().rev().fold(!checksum, before)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn reversed_checksum_yields_its_seed(
            salt in any::<u32>(),
            bytes in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            prop_assert_eq!(crc_seed(crc32c::crc32c_append(salt, &bytes), &bytes), salt);
        }
    }
}
