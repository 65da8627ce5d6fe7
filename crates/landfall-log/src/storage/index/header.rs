//! The header of an index file: the segment that it describes, and the lengths of its tables.

use super::entry::Id;
use super::page;
use super::{BatchPosition, ProducerRange};
use crate::write::producers::ProducerState;

pub(super) const HEADER_BYTES: usize = 80;

const MAGIC: [u8; 4] = *b"LFI\x01";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) salt: u32,
    pub(super) partition: u32,
    pub(super) base_offset: u64,
    pub(super) end_offset: u64,
    pub(super) segment_bytes: u64,
    pub(super) latest_time: i64,
    pub(super) positions: u32,
    pub(super) ids: u32,
    pub(super) ranges: u32,
    pub(super) producers: u32,
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[0..4].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&self.salt.to_le_bytes());
        header[12..16].copy_from_slice(&self.partition.to_le_bytes());
        header[16..24].copy_from_slice(&self.base_offset.to_le_bytes());
        header[24..32].copy_from_slice(&self.end_offset.to_le_bytes());
        header[32..40].copy_from_slice(&self.segment_bytes.to_le_bytes());
        header[40..48].copy_from_slice(&self.latest_time.to_le_bytes());
        header[48..52].copy_from_slice(&self.positions.to_le_bytes());
        header[52..56].copy_from_slice(&self.ids.to_le_bytes());
        header[56..60].copy_from_slice(&self.ranges.to_le_bytes());
        header[60..64].copy_from_slice(&self.producers.to_le_bytes());
        let checksum = crc32c::crc32c(&header[8..]);
        header[4..8].copy_from_slice(&checksum.to_le_bytes());
        header
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err("the file is too short for the header of an index");
        };
        if header[0..4] != MAGIC {
            return Err("the file does not start like an index");
        }
        if crc32c::crc32c(&header[8..]).to_le_bytes() != header[4..8] {
            return Err("the checksum of the header is wrong");
        }
        if header[64..] != [0; 16] {
            return Err("the header uses fields that this build does not know");
        }
        Ok(Self {
            salt: u32::from_le_bytes(page::field(header, 8)),
            partition: u32::from_le_bytes(page::field(header, 12)),
            base_offset: u64::from_le_bytes(page::field(header, 16)),
            end_offset: u64::from_le_bytes(page::field(header, 24)),
            segment_bytes: u64::from_le_bytes(page::field(header, 32)),
            latest_time: i64::from_le_bytes(page::field(header, 40)),
            positions: u32::from_le_bytes(page::field(header, 48)),
            ids: u32::from_le_bytes(page::field(header, 52)),
            ranges: u32::from_le_bytes(page::field(header, 56)),
            producers: u32::from_le_bytes(page::field(header, 60)),
        })
    }

    /// The size of the whole file. It is compared before any table is read, so that a damaged header cannot cause an
    /// allocation larger than the file.
    pub(super) fn file_bytes(&self) -> u64 {
        HEADER_BYTES as u64
            + page::table_bytes::<BatchPosition>(self.positions)
            + page::table_bytes::<Id>(self.ids)
            + page::table_bytes::<ProducerRange>(self.ranges)
            + page::table_bytes::<ProducerState>(self.producers)
    }
}
