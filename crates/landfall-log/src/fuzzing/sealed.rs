//! Corrects the checksums of fuzzed bytes, as far as they have the shape of the file.

use super::number;
use crate::storage::batch;
use crate::storage::segment;

/// Lengths of the index file's header, of a page header, and of the entries of each table.
const INDEX_HEADER_BYTES: usize = 80;
const PAGE_HEADER_BYTES: usize = 16;
const PAGE_BYTES: usize = 4096;
const ENTRY_BYTES: [usize; 4] = [24, 20, 32, 24];

pub(super) fn segment(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    seal(&mut bytes, 4, 8, segment::HEADER_BYTES, 0);
    let salt = number(&bytes, 8) as u32;
    let mut position = segment::HEADER_BYTES;
    while bytes.get(position..).is_some_and(|rest| rest.len() >= batch::FRAME_BYTES) {
        let length = number(&bytes, position + 8) as u32 as usize;
        let batch = &mut bytes[position..];
        let end = batch.len().min(batch::FRAME_BYTES + length);
        seal(batch, 64, 8, 64, salt);
        seal(batch, 4, 8, end, salt);
        position += end;
    }
    bytes
}

pub(super) fn index(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    seal(&mut bytes, 4, 8, INDEX_HEADER_BYTES, 0);
    let salt = number(&bytes, 8) as u32;
    let mut position = INDEX_HEADER_BYTES;
    for (table, entry_bytes) in ENTRY_BYTES.into_iter().enumerate() {
        let mut left = number(&bytes, 48 + 4 * table) as u32 as usize;
        while left > 0 && position < bytes.len() {
            let entries = left.min((PAGE_BYTES - PAGE_HEADER_BYTES) / entry_bytes);
            let page = &mut bytes[position..];
            let end = page.len().min(PAGE_HEADER_BYTES + entries * entry_bytes);
            seal(page, 0, 4, end, salt);
            position += end;
            left -= entries;
        }
    }
    bytes
}

pub(super) fn tail(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let end = bytes.len();
    seal(&mut bytes, 4, 8, end, 0);
    bytes
}

/// Writes the checksum of the bytes `from` to `to` at `at`, if the file is long enough.
fn seal(bytes: &mut [u8], at: usize, from: usize, to: usize, salt: u32) {
    let Some(checksum) = bytes.get(from..to).map(|sealed| crc32c::crc32c_append(salt, sealed)) else { return };
    if let Some(field) = bytes.get_mut(at..at + 4) {
        field.copy_from_slice(&checksum.to_le_bytes());
    }
}
