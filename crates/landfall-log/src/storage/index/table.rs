//! A table of sorted entries in an index file: in memory only the first key of each of its pages.

use std::path::Path;

use landfall_core::Result;

use super::entry::Entry;
use super::page::{self, Page, entries_per_page, page_bytes, page_count};
use crate::disk::{self, File};
use crate::durable::{damaged, failed};

/// Where the pages of a file come from, and what verifies them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) file: &'a dyn File,
    pub(super) path: &'a Path,
    pub(super) salt: u32,
}

/// Where the next table of a file begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Start {
    pub(super) position: u64,
    pub(super) page: u32,
}

#[derive(Debug)]
pub(super) struct Table<E: Entry> {
    start: Start,
    count: u32,
    /// The first key of each page.
    fences: Vec<E::Key>,
}

impl<E: Entry> Table<E> {
    /// Appends the pages of `entries`, which are sorted, to `bytes`, and moves `start` behind them.
    pub(super) fn write(entries: &[E], salt: u32, start: &mut Start, bytes: &mut Vec<u8>) -> Self {
        let mut table = Self { start: *start, count: entries.len() as u32, fences: Vec::new() };
        for (number, entries) in (start.page..).zip(entries.chunks(entries_per_page::<E>())) {
            page::encode(salt, number, entries.iter(), bytes);
            table.fences.extend(entries.first().map(E::key));
        }
        table.pass(start);
        table
    }

    /// Reads and verifies a table of `count` entries, hands each to `each`, and moves `start` behind it. The caller has
    /// made sure that the file is long enough.
    pub(super) fn read(source: Source<'_>, start: &mut Start, count: u32, mut each: impl FnMut(E)) -> Result<Self> {
        let mut table = Self { start: *start, count, fences: Vec::new() };
        let mut last = None;
        for index in 0..page_count::<E>(count) {
            for (position, entry) in table.page(source, index)?.iter().enumerate() {
                let key = entry.key();
                if last.is_some_and(|last| last >= key) {
                    return Err(damaged(
                        source.path,
                        table.position(index),
                        "the entries of the page are not in order",
                    ));
                }
                if position == 0 {
                    table.fences.push(key);
                }
                last = Some(key);
                each(entry);
            }
        }
        table.pass(start);
        Ok(table)
    }

    pub(super) fn len(&self) -> u32 {
        self.count
    }

    /// Calls `each` with every entry, in order.
    pub(super) fn for_each(&self, source: Source<'_>, mut each: impl FnMut(E)) -> Result<()> {
        for index in 0..page_count::<E>(self.count) {
            self.page(source, index)?.iter().for_each(&mut each);
        }
        Ok(())
    }

    /// The only page that can hold the last entry whose key is not greater than `key`.
    pub(super) fn page_before(&self, key: &E::Key) -> Option<u32> {
        self.fences.partition_point(|fence| fence <= key).checked_sub(1).map(|index| index as u32)
    }

    /// Reads and verifies one page.
    pub(super) fn page(&self, source: Source<'_>, index: u32) -> Result<Page<E>> {
        let (position, per_page) = (self.position(index), entries_per_page::<E>());
        let count = (self.count as usize).saturating_sub(index as usize * per_page).min(per_page);
        let bytes = disk::read(source.file, position, page_bytes::<E>(count)).map_err(failed("read", source.path))?;
        Page::decode(bytes, source.salt, self.start.page + index, count)
            .map_err(|why| damaged(source.path, position, why))
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.fences.capacity() * size_of::<E::Key>()
    }

    fn position(&self, page: u32) -> u64 {
        self.start.position + u64::from(page) * page_bytes::<E>(entries_per_page::<E>()) as u64
    }

    fn pass(&self, start: &mut Start) {
        start.position += page::table_bytes::<E>(self.count);
        start.page += page_count::<E>(self.count);
    }
}
