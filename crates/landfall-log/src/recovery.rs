//! What is done with a partition's files when a log is opened.
//!
//! A process may die, or the power fail, in the middle of a write. What it leaves is an **unfinished tail**: bytes
//! at the end of the last segment that were never synced, so nobody was told that they are there. They are cut off.
//! Everything else that is not as it was written is **damage**, and the log does not open: it is reported with file
//! and position, and a person decides.
//!
//! The two are told apart by what an unfinished write looks like (`batch.rs` says how), and by testimony: each batch
//! says up to which offset everything had been synced when it was written, so that a batch that looks unfinished is
//! damage all the same if a later one testifies to it. Damage is also
//!
//! * a bad batch in any segment but the last, since a segment is begun only after the one before was synced,
//! * a segment whose size is not the one its successor recorded, or that is missing between others,
//! * a group that has finished more than is there ([`crate::group`]).
//!
//! What nobody can tell: that the last batches before a crash, of which not a byte is left, had been synced. A disk
//! that says so and forgets them is not one that anything can be built on.
//!
//! The batches of earlier segments are not read here. A reader that comes to a bad one reports it, and `verify.rs` reads
//! them all.

use std::io;
use std::path::Path;

use landfall_core::Result;
use tracing::warn;

use crate::disk::{Access, Disk};
use crate::durable::{self, UNFINISHED, damaged, failed};
use crate::partition::Synced;
use crate::reader::{Found, SegmentReader};
use crate::segment::{self, Extent, SegmentHeader};

/// Checks the partition in `directory`, cuts off an unfinished tail and answers with what is left.
pub(crate) fn recover(disk: &dyn Disk, directory: &Path, partition: u32) -> Result<Synced> {
    durable::remove(disk, &directory.join(UNFINISHED))?;
    let bases = segment::list(disk, directory)?;
    let Some(&last) = bases.last() else { return Ok(Synced::default()) };
    let mut segments = chain(disk, directory, partition, &bases)?;
    let mut reader = SegmentReader::open(disk, directory, partition, last)?;
    let bytes = recover_last(disk, &mut reader)?;
    segments.push(Extent { base_offset: last, bytes });
    Ok(Synced { segments, next_offset: reader.next_offset() })
}

/// The extents of all segments but the last, after checking each against the size that its successor recorded.
fn chain(disk: &dyn Disk, directory: &Path, partition: u32, bases: &[u64]) -> Result<Vec<Extent>> {
    let mut segments = Vec::with_capacity(bases.len());
    let mut previous: Option<Extent> = None;
    for &base_offset in bases {
        let path = segment::path(directory, base_offset);
        let file = disk.open(&path, Access::Read).map_err(failed("open", &path))?;
        let header = SegmentHeader::read(&*file, &path, partition, base_offset)?;
        if header.previous != previous {
            return Err(damaged(
                &path,
                0,
                format!("it continues {}, but before it there is {}", described(header.previous), described(previous)),
            ));
        }
        // One that was rewritten has another size than the one its successor knows it by.
        let bytes = file.length().map_err(failed("look at", &path))?;
        segments.push(Extent { base_offset, bytes });
        if header.original_bytes.is_some() && bases.last() == Some(&base_offset) {
            let missing = "another segment followed this one when it was rewritten, and is missing";
            return Err(damaged(&path, bytes, missing));
        }
        previous = Some(Extent { base_offset, bytes: header.original_bytes.unwrap_or(bytes) });
    }
    segments.pop();
    Ok(segments)
}

fn described(extent: Option<Extent>) -> String {
    extent.map_or("no segment".to_owned(), |Extent { base_offset, bytes }| {
        format!("the segment from offset {base_offset} with {bytes} bytes")
    })
}

/// Reads every batch of the last segment and cuts what is unfinished behind them; answers with where they end.
fn recover_last(disk: &dyn Disk, reader: &mut SegmentReader) -> Result<u64> {
    let bytes = reader.file_bytes()?;
    let defect = loop {
        match reader.next(bytes)? {
            Found::Batch(_) => {}
            Found::End => return Ok(bytes),
            Found::Bad(defect) => break defect,
        }
    };
    if !defect.is_unfinished() {
        return Err(reader.damaged(defect));
    }
    let (path, position, rest) = (reader.path(), reader.position(), reader.rest(bytes)?);
    // The room that was made for the batches to come.
    if rest.iter().all(|byte| *byte == 0) {
        return Ok(position);
    }
    if reader.was_synced(&rest) {
        return Err(reader.damaged(format!("{defect}, and what follows shows that it had been right")));
    }
    warn!(
        file = %path.display(), position, cut_bytes = rest.len(), reason = %defect,
        "cut off an unfinished write at the end of the log"
    );
    let cut = || -> io::Result<()> {
        let file = disk.open(path, Access::Write)?;
        file.set_length(position)?;
        file.sync()
    };
    cut().map_err(failed("cut off the unfinished end of", path))?;
    Ok(position)
}
