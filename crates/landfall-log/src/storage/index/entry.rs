//! The encoding of one entry of each table.

use landfall_core::MessageId;

use super::page::field;
use super::{BatchPosition, ProducerRange};
use crate::write::producers::{ProducerId, ProducerState};

/// An entry of a table.
pub(super) trait Entry: Sized {
    /// The sort key of the table.
    type Key: Ord + Copy;

    const BYTES: usize;

    fn key(&self) -> Self::Key;

    /// Appends exactly [`Self::BYTES`].
    fn encode(&self, page: &mut Vec<u8>);

    /// Decodes an entry from [`Self::BYTES`] bytes. Accepts any bytes; the page's checksum covers their validity.
    fn decode(bytes: &[u8]) -> Self;
}

/// An id, and the offset of its message relative to the segment's first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Id {
    pub(super) id: MessageId,
    pub(super) delta: u32,
}

/// Ids sort by their bytes; comparing them as one number is faster.
pub(super) fn number(id: MessageId) -> u128 {
    u128::from_be_bytes(*id.as_bytes())
}

impl Entry for Id {
    type Key = u128;
    const BYTES: usize = 20;

    fn key(&self) -> u128 {
        number(self.id)
    }

    fn encode(&self, page: &mut Vec<u8>) {
        page.extend_from_slice(self.id.as_bytes());
        page.extend_from_slice(&self.delta.to_le_bytes());
    }

    fn decode(bytes: &[u8]) -> Self {
        Self { id: MessageId::from_bytes(field(bytes, 0)), delta: u32::from_le_bytes(field(bytes, 16)) }
    }
}

impl Entry for BatchPosition {
    type Key = u64;
    const BYTES: usize = 24;

    fn key(&self) -> u64 {
        self.offset
    }

    fn encode(&self, page: &mut Vec<u8>) {
        page.extend_from_slice(&self.offset.to_le_bytes());
        page.extend_from_slice(&self.position.to_le_bytes());
        page.extend_from_slice(&self.latest_before.to_le_bytes());
    }

    fn decode(bytes: &[u8]) -> Self {
        Self {
            offset: u64::from_le_bytes(field(bytes, 0)),
            position: u64::from_le_bytes(field(bytes, 8)),
            latest_before: i64::from_le_bytes(field(bytes, 16)),
        }
    }
}

impl Entry for ProducerRange {
    type Key = (ProducerId, u64);
    const BYTES: usize = 32;

    fn key(&self) -> (ProducerId, u64) {
        (self.producer, self.first_sequence)
    }

    fn encode(&self, page: &mut Vec<u8>) {
        page.extend_from_slice(&self.producer.to_le_bytes());
        page.extend_from_slice(&self.first_sequence.to_le_bytes());
        page.extend_from_slice(&self.first_offset.to_le_bytes());
        page.extend_from_slice(&self.count.to_le_bytes());
        page.extend_from_slice(&self.epoch.to_le_bytes());
        page.extend_from_slice(&[0; 2]);
    }

    fn decode(bytes: &[u8]) -> Self {
        Self {
            producer: u64::from_le_bytes(field(bytes, 0)),
            first_sequence: u64::from_le_bytes(field(bytes, 8)),
            first_offset: u64::from_le_bytes(field(bytes, 16)),
            count: u32::from_le_bytes(field(bytes, 24)),
            epoch: u16::from_le_bytes(field(bytes, 28)),
        }
    }
}

impl Entry for ProducerState {
    type Key = ProducerId;
    const BYTES: usize = 24;

    fn key(&self) -> ProducerId {
        self.producer
    }

    fn encode(&self, page: &mut Vec<u8>) {
        page.extend_from_slice(&self.producer.to_le_bytes());
        page.extend_from_slice(&self.next_sequence.to_le_bytes());
        page.extend_from_slice(&self.epoch.to_le_bytes());
        page.extend_from_slice(&[0; 6]);
    }

    fn decode(bytes: &[u8]) -> Self {
        Self {
            producer: u64::from_le_bytes(field(bytes, 0)),
            next_sequence: u64::from_le_bytes(field(bytes, 8)),
            epoch: u16::from_le_bytes(field(bytes, 16)),
        }
    }
}
