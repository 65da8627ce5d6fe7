//! Finds the salt of a segment whose header is damaged, so that its batches can still be told from anything else.
//!
//! Two places know it beside the header's checksum. The first batch, of which the name of the file says where it begins
//! and with which offset: the checksum of its header was begun with the salt, and a checksum can be run backwards; the
//! checksum of the whole batch then proves it. And the four bytes of the segment's header themselves, if it was another
//! part of it that was damaged: any batch that is right with them proves them.
//!
//! A batch anywhere else proves no salt that was computed from it: it may be a part of a payload.

use std::path::Path;
use std::sync::Arc;

use landfall_core::Result;

use crate::damage::walk;
use crate::disk::File;
use crate::storage::batch::{self, BatchHeader};
use crate::storage::reader::SegmentReader;
use crate::storage::segment::{self, SegmentHeader};

const FIRST_BATCH: u64 = segment::HEADER_BYTES as u64;

/// `made_up`, which has all that is known about the segment's header, with the salt; `None` if it cannot be told.
pub(crate) fn header(file: &Arc<dyn File>, path: &Path, made_up: SegmentHeader) -> Result<Option<SegmentHeader>> {
    let reader_with = |salt| SegmentReader::new(Arc::clone(file), path.to_owned(), SegmentHeader { salt, ..made_up });
    let reader = reader_with(0);
    let end = reader.file_bytes()?;
    if let Some(salt) = computed_salt(&reader, end)? {
        return Ok(Some(SegmentHeader { salt, ..made_up }));
    }
    let salt = reader.read_at(8, 4)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
    let Some(salt) = salt else { return Ok(None) };
    let reader = reader_with(salt);
    let is_ours = |batch: &BatchHeader| batch.base_offset >= made_up.base_offset;
    let found = walk::find_batch(&reader, FIRST_BATCH, end, is_ours)?;
    Ok(found.map(|_| *reader.header()))
}

fn computed_salt(reader: &SegmentReader, end: u64) -> Result<Option<u32>> {
    let bytes = reader.read_at(FIRST_BATCH, batch::HEADER_BYTES)?;
    let (Some(covered), Some(checksum)) = (bytes.get(8..64), bytes.get(64..).and_then(|rest| rest.first_chunk()))
    else {
        return Ok(None);
    };
    let salt = begun_with(u32::from_le_bytes(*checksum), covered);
    let Ok(header) = BatchHeader::read(&bytes, salt) else { return Ok(None) };
    if header.base_offset != reader.header().base_offset || header.total_bytes() as u64 > end {
        return Ok(None);
    }
    let batch = reader.read_at(FIRST_BATCH, header.total_bytes())?;
    Ok(header.verify(salt, &batch, FIRST_BATCH).is_ok().then_some(salt))
}

/// What a CRC32C that ended as `checksum` after `bytes` was begun with.
fn begun_with(checksum: u32, bytes: &[u8]) -> u32 {
    /// The polynomial, its lowest term in the highest bit. That bit tells whether it was applied in a step.
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
        fn a_checksum_run_backwards_gives_what_it_was_begun_with(
            salt in any::<u32>(),
            bytes in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            prop_assert_eq!(begun_with(crc32c::crc32c_append(salt, &bytes), &bytes), salt);
        }
    }
}
