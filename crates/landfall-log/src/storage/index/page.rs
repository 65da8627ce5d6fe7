//! A page of a table: up to 4 KiB of sorted entries with a checksum.

use std::cmp::Ordering;
use std::marker::PhantomData;

use super::entry::Entry;

pub(super) const PAGE_BYTES: usize = 4096;

const HEADER_BYTES: usize = 16;

/// The number of entries in a full page.
pub(super) const fn entries_per_page<E: Entry>() -> usize {
    (PAGE_BYTES - HEADER_BYTES) / E::BYTES
}

/// The number of pages of a table with `count` entries.
pub(super) fn page_count<E: Entry>(count: u32) -> u32 {
    count.div_ceil(entries_per_page::<E>() as u32)
}

/// The size of a page with `count` entries.
pub(super) fn page_bytes<E: Entry>(count: usize) -> usize {
    HEADER_BYTES + count * E::BYTES
}

/// The size of a table with `count` entries. A page is as long as its entries, so a full one may be shorter than 4
/// KiB.
pub(super) fn table_bytes<E: Entry>(count: u32) -> u64 {
    u64::from(page_count::<E>(count)) * HEADER_BYTES as u64 + u64::from(count) * E::BYTES as u64
}

/// Appends the page `number` with `entries`, at least one and at most a full page, to `bytes`.
pub(super) fn encode<'a, E: Entry + 'a>(
    salt: u32,
    number: u32,
    entries: impl ExactSizeIterator<Item = &'a E>,
    bytes: &mut Vec<u8>,
) {
    let start = bytes.len();
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.extend_from_slice(&(entries.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    entries.for_each(|entry| entry.encode(bytes));
    let checksum = crc32c::crc32c_append(salt, &bytes[start + 4..]);
    bytes[start..start + 4].copy_from_slice(&checksum.to_le_bytes());
}

/// A page with a right checksum.
#[derive(Debug)]
pub(super) struct Page<E> {
    entries: Vec<u8>,
    entry: PhantomData<E>,
}

impl<E: Entry> Page<E> {
    /// Verifies `bytes`, which must be the page `number` with `count` entries.
    pub(super) fn decode(mut bytes: Vec<u8>, salt: u32, number: u32, count: usize) -> Result<Self, &'static str> {
        if bytes.len() != page_bytes::<E>(count) {
            return Err("the file ends before the page does");
        }
        if crc32c::crc32c_append(salt, &bytes[4..]).to_le_bytes() != bytes[0..4] {
            return Err("the checksum of the page is wrong");
        }
        let expected = [number.to_le_bytes(), (count as u32).to_le_bytes(), [0; 4]];
        if &bytes[4..HEADER_BYTES] != expected.as_flattened() {
            return Err("the page belongs to another position");
        }
        bytes.drain(..HEADER_BYTES);
        Ok(Self { entries: bytes, entry: PhantomData })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = E> {
        self.entries.chunks_exact(E::BYTES).map(E::decode)
    }

    /// The last entry whose key is not greater than `key`.
    pub(super) fn at_or_before(&self, key: &E::Key) -> Option<E> {
        let (mut low, mut high) = (0, self.entries.len() / E::BYTES);
        while low < high {
            let middle = low.midpoint(high);
            match self.entry(middle).key().cmp(key) {
                Ordering::Greater => high = middle,
                Ordering::Less | Ordering::Equal => low = middle + 1,
            }
        }
        low.checked_sub(1).map(|index| self.entry(index))
    }

    fn entry(&self, index: usize) -> E {
        E::decode(&self.entries[index * E::BYTES..(index + 1) * E::BYTES])
    }
}

/// Copies `N` bytes from `at` on.
pub(super) fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|index| bytes[at + index])
}
