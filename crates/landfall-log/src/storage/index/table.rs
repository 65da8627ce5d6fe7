//! A table of sorted entries in an index file. In memory it keeps only the first key of each page.

use std::path::Path;

use landfall_core::Result;

use super::entry::Entry;
use super::page::{self, Page, entries_per_page, page_bytes, page_count};
use crate::disk::{self, File};
use crate::durable::{damaged, failed};

/// The file of a table, and the salt that verifies its pages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) file: &'a dyn File,
    pub(super) path: &'a Path,
    pub(super) salt: u32,
}

/// The start of the next table in a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct TableStart {
    pub(super) position: u64,
    pub(super) page: u32,
}

#[derive(Debug)]
pub(super) struct Table<E: Entry> {
    start: TableStart,
    count: u32,
    /// The first key of each page.
    fences: Vec<E::Key>,
}

impl<E: Entry> Table<E> {
    /// Appends the pages of the sorted `entries` to `bytes`, and advances `start` past them.
    pub(super) fn write(entries: &[E], salt: u32, start: &mut TableStart, bytes: &mut Vec<u8>) -> Self {
        let mut table = Self { start: *start, count: entries.len() as u32, fences: Vec::new() };
        for (number, entries) in (start.page..).zip(entries.chunks(entries_per_page::<E>())) {
            page::encode(salt, number, entries.iter(), bytes);
            table.fences.extend(entries.first().map(E::key));
        }
        table.advance(start);
        table
    }

    /// Reads and verifies a table of `count` entries, passes each to `each`, and advances `start` past it. The caller
    /// has checked that the file is long enough.
    pub(super) fn read(
        source: Source<'_>,
        start: &mut TableStart,
        count: u32,
        mut each: impl FnMut(E),
    ) -> Result<Self> {
        let mut table = Self { start: *start, count, fences: Vec::new() };
        let mut last = None;
        for index in 0..page_count::<E>(count) {
            for (position, entry) in table.page(source, index)?.iter().enumerate() {
                let key = entry.key();
                if last.is_some_and(|last| last >= key) {
                    return Err(damaged(source.path, table.position(index), "the entries of the page are not sorted"));
                }
                if position == 0 {
                    table.fences.push(key);
                }
                last = Some(key);
                each(entry);
            }
        }
        table.advance(start);
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

    /// Returns the only page that can hold the last entry whose key is not greater than `key`.
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

    fn advance(&self, start: &mut TableStart) {
        start.position += page::table_bytes::<E>(self.count);
        start.page += page_count::<E>(self.count);
    }
}
