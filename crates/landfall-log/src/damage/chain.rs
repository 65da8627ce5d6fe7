//! The chain of a partition's segments, including its gaps.

use std::io;
use std::path::Path;
use std::sync::Arc;

use landfall_core::{ErrorKind, Result};

use crate::damage::salvage;
use crate::disk::{Access, Disk, File};
use crate::durable::failed;
use crate::storage::reader::SegmentReader;
use crate::storage::segment::{self, Extent, SegmentHeader};
use crate::storage::tail::TailBackup;

/// A segment that exists or should exist.
#[derive(Debug)]
pub(crate) struct SegmentLink {
    pub(crate) base_offset: u64,
    pub(crate) state: State,
    /// Its own size, or its size before it was rewritten.
    pub(crate) own_bytes: u64,
    /// The size that its successor recorded, or will record.
    pub(crate) recorded_bytes: u64,
    /// The first offset of the next segment; `None` for the last.
    pub(crate) limit: Option<u64>,
    /// The backup of its last batches, if there is one.
    pub(crate) tail: Option<TailBackup>,
}

#[derive(Debug)]
pub(crate) enum State {
    Whole(SegmentHeader),
    /// Its header is damaged. `known` is a salvaged header, if its batches can be read with it.
    Headless {
        known: Option<SegmentHeader>,
        why: String,
    },
    Missing,
}

impl SegmentLink {
    fn new(base_offset: u64, state: State, own_bytes: u64) -> Self {
        Self { base_offset, state, own_bytes, recorded_bytes: own_bytes, limit: None, tail: None }
    }

    /// Its header, if it is intact.
    pub(crate) fn header(&self) -> Option<&SegmentHeader> {
        if let State::Whole(header) = &self.state { Some(header) } else { None }
    }

    pub(crate) fn extent(&self) -> Extent {
        Extent { base_offset: self.base_offset, bytes: self.recorded_bytes }
    }

    /// Returns a reader of its batches; `None` if they cannot be read, or the file is gone by now.
    pub(crate) fn reader(&self, disk: &dyn Disk, directory: &Path) -> Result<Option<SegmentReader>> {
        let path = segment::path(directory, self.base_offset);
        let (State::Whole(header) | State::Headless { known: Some(header), .. }) = &self.state else { return Ok(None) };
        let Some(file) = open(disk, &path)? else { return Ok(None) };
        let file = match &self.tail {
            Some(tail) => tail.clone().overlay(file),
            None => file,
        };
        // Compaction may have replaced the file since the chain was read.
        let now = SegmentHeader::read(&*file, &path, header.partition, self.base_offset);
        Ok(Some(SegmentReader::new(file, path, now.unwrap_or(*header))))
    }
}

/// Returns the chain of the partition in `directory`, which starts at `start`: existing segments, and the missing ones
/// between them. `tail` is the backup of the last one's batches.
pub(crate) fn read_chain(
    disk: &dyn Disk,
    directory: &Path,
    partition: u32,
    start: u64,
    tail: Option<TailBackup>,
) -> Result<Vec<SegmentLink>> {
    let mut links: Vec<SegmentLink> = Vec::new();
    for base_offset in segment::list(disk, directory)? {
        let Some(link) = read(disk, directory, partition, base_offset)? else {
            // Retention removed it meanwhile, and everything before it.
            links.clear();
            continue;
        };
        let before = links.last().map(|link| link.base_offset);
        let is_beginning = before.is_none() && base_offset <= start;
        if let Some(Extent { base_offset: named, bytes }) = link.header().and_then(|header| header.previous)
            && !is_beginning
            && named < base_offset
            && before.is_none_or(|before| before < named)
        {
            links.push(SegmentLink::new(named, State::Missing, bytes));
        }
        links.push(link);
    }
    if links.first().is_some_and(|first| first.base_offset > start) {
        links.insert(0, SegmentLink::new(start, State::Missing, segment::HEADER_BYTES as u64));
    }
    for index in 1..links.len() {
        let (base_offset, previous) = (links[index].base_offset, links[index].header().and_then(|next| next.previous));
        let before = &mut links[index - 1];
        before.limit = Some(base_offset);
        if let Some(previous) = previous.filter(|previous| previous.base_offset == before.base_offset) {
            before.recorded_bytes = previous.bytes;
        }
    }
    if let Some(last) = links.last_mut() {
        last.tail = tail.filter(|tail| tail.base_offset == last.base_offset);
    }
    Ok(links)
}

/// Reads the segment that starts at `base_offset`; `None` if it no longer exists.
fn read(disk: &dyn Disk, directory: &Path, partition: u32, base_offset: u64) -> Result<Option<SegmentLink>> {
    let path = segment::path(directory, base_offset);
    let Some(file) = open(disk, &path)? else { return Ok(None) };
    let bytes = file.length().map_err(failed("read the size of", &path))?;
    let (state, own_bytes) = match SegmentHeader::read(&*file, &path, partition, base_offset) {
        Ok(header) => (State::Whole(header), header.original_bytes.unwrap_or(bytes)),
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            let known = salvage::header(&file, &path, SegmentHeader::new(partition, base_offset, None))?;
            let (text, at) = (error.to_string(), "is damaged at byte 0: ");
            let why = text.rsplit_once(at).map_or(text.as_str(), |(_, why)| why).to_owned();
            (State::Headless { known, why }, bytes.max(segment::HEADER_BYTES as u64))
        }
        Err(error) => return Err(error),
    };
    Ok(Some(SegmentLink::new(base_offset, state, own_bytes)))
}

fn open(disk: &dyn Disk, path: &Path) -> Result<Option<Arc<dyn File>>> {
    match disk.open(path, Access::Read) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("open", path)(error)),
    }
}
