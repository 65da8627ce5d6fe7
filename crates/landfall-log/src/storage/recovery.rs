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
//! * a segment whose size is not the one its successor recorded, or that is missing between others or in front,
//! * a group that has finished more than is there ([`crate::group::progress`]).
//!
//! What nobody can tell: that the last batches before a crash, of which not a byte is left, had been synced. A disk
//! that says so and forgets them is not one that anything can be built on.
//!
//! The batches of earlier segments are not read here, unless their index must be made again. A reader that comes to a
//! bad one reports it, and `damage/verify.rs` reads them all.

use std::io;
use std::path::Path;
use std::sync::Arc;

use landfall_core::Result;
use tracing::warn;

use crate::disk::{Access, Disk};
use crate::durable::{self, UNFINISHED, damaged, failed, is_full};
use crate::storage::batch::{Batch, BatchHeader, Sequenced};
use crate::storage::index::{self, Builder, Described, Expected, IndexFile, ProducerRange};
use crate::storage::partition::{Recovered, Segment};
use crate::storage::reader::{Found, SegmentReader};
use crate::storage::rewrite::REWRITTEN;
use crate::storage::segment::{self, Extent, SegmentHeader};
use crate::storage::start::{self, Start};
use crate::storage::tail::{self, Tail};
use crate::write::producers::Producers;

/// Checks the partition in `directory`, finishes what was begun and cuts off an unfinished tail; what is left.
pub(crate) fn recover(disk: &Arc<dyn Disk>, directory: &Path, partition: u32) -> Result<Recovered> {
    durable::remove(&**disk, &directory.join(UNFINISHED))?;
    durable::remove(&**disk, &directory.join(REWRITTEN))?;
    tail::finish(&**disk, directory)?;
    let Start { offset: start, producers } = start::read(&**disk, directory)?;
    let bases = remaining(&**disk, directory, start)?;
    let Some((&last, finished)) = bases.split_last() else {
        if start > 0 {
            let sentence = format!("the partition begins with offset {start}, but no segment is there");
            return Err(damaged(&segment::path(directory, start), 0, sentence));
        }
        return Ok(Recovered::empty());
    };
    let headers = chain(&**disk, directory, partition, &bases, start)?;
    let (mut segments, mut producers) = (Vec::with_capacity(bases.len()), Producers::from_snapshot(&producers));
    for (index, &base_offset) in finished.iter().enumerate() {
        let place = Finished { disk, directory, header: headers[index], end_offset: bases[index + 1] };
        let index = place.index(&producers)?;
        let bytes = durable::file_bytes(&**disk, &segment::path(directory, base_offset))?;
        producers = Producers::from_snapshot(&index.producers()?);
        let created = headers[segments.len()].created;
        segments.push(Segment { extent: Extent { base_offset, bytes }, created, index: Some(Arc::new(index)) });
    }
    let mut reader = SegmentReader::open(&**disk, directory, partition, last)?;
    let mut unfinished = Builder::new(last);
    let mut doubtful = Doubtful::default();
    let bytes = recover_last(&**disk, &mut reader, |batch| {
        doubtful.add(batch);
        add(batch, &mut unfinished, &mut producers);
    })?;
    doubtful.make_durable(&**disk, directory, &reader, bytes)?;
    durable::sync_directory(&**disk, directory)?;
    let created = reader.header().created;
    segments.push(Segment { extent: Extent { base_offset: last, bytes }, created, index: None });
    let next_offset = reader.next_offset();
    Ok(Recovered { segments, next_offset, unfinished, producers: producers.snapshot() })
}

/// The first offsets of the segments from `start` on. What is before it was about to be removed, and is now.
fn remaining(disk: &dyn Disk, directory: &Path, start: u64) -> Result<Vec<u64>> {
    let mut bases = segment::list(disk, directory)?;
    // A process may have died before it could sync where the partition begins, and nothing may be missing without that.
    if bases.first().is_some_and(|first| *first < start) {
        durable::sync_directory(disk, directory)?;
    }
    for base_offset in bases.extract_if(.., |base_offset| *base_offset < start) {
        durable::remove(disk, &segment::path(directory, base_offset))?;
        durable::remove(disk, &index::path(directory, base_offset))?;
    }
    Ok(bases)
}

/// The headers of all segments, each of which goes on where the one before ends.
fn chain(disk: &dyn Disk, directory: &Path, partition: u32, bases: &[u64], start: u64) -> Result<Vec<SegmentHeader>> {
    let mut headers = Vec::with_capacity(bases.len());
    let mut previous: Option<Extent> = None;
    for &base_offset in bases {
        let path = segment::path(directory, base_offset);
        let file = disk.open(&path, Access::Read).map_err(failed("open", &path))?;
        let header = SegmentHeader::read(&*file, &path, partition, base_offset)?;
        // Of the one before the first nothing is left.
        let is_start = headers.is_empty() && start > 0 && base_offset == start;
        if header.previous != previous && !is_start {
            return Err(damaged(
                &path,
                0,
                format!("it continues {}, but before it there is {}", described(header.previous), described(previous)),
            ));
        }
        // One that was rewritten has another size than the one its successor knows it by.
        let bytes = file.length().map_err(failed("look at", &path))?;
        if header.original_bytes.is_some() && bases.last() == Some(&base_offset) {
            let missing = "another segment followed this one when it was rewritten, and is missing";
            return Err(damaged(&path, bytes, missing));
        }
        previous = Some(Extent { base_offset, bytes: header.original_bytes.unwrap_or(bytes) });
        headers.push(header);
    }
    Ok(headers)
}

fn described(extent: Option<Extent>) -> String {
    extent.map_or("no segment".to_owned(), |Extent { base_offset, bytes }| {
        format!("the segment from offset {base_offset} with {bytes} bytes")
    })
}

/// A segment that has a successor.
struct Finished<'a> {
    disk: &'a Arc<dyn Disk>,
    directory: &'a Path,
    header: SegmentHeader,
    /// Where its successor begins.
    end_offset: u64,
}

impl Finished<'_> {
    /// Its index, made again if need be; `before` is how far producers had come in front of it.
    fn index(&self, before: &Producers) -> Result<IndexFile> {
        let SegmentHeader { salt, partition, base_offset, .. } = self.header;
        let path = segment::path(self.directory, base_offset);
        let segment_bytes = durable::file_bytes(&**self.disk, &path)?;
        let expected = Expected { salt, partition, end_offset: Some(self.end_offset), segment_bytes };
        if let Some(index) = IndexFile::open(self.disk, self.directory, base_offset, expected)? {
            return Ok(index);
        }
        let mut reader = SegmentReader::open(&**self.disk, self.directory, partition, base_offset)?;
        let (mut builder, mut producers) = (Builder::new(base_offset), Producers::from_snapshot(&before.snapshot()));
        loop {
            match reader.next(segment_bytes)? {
                Found::Batch(batch) => add(&batch, &mut builder, &mut producers),
                Found::End if reader.next_offset() == self.end_offset => break,
                Found::End => return Err(reader.damaged("the segment ends before the next one begins")),
                Found::Bad(defect) => return Err(reader.damaged(defect)),
            }
        }
        let described = Described { salt, partition, end_offset: self.end_offset, segment_bytes };
        builder.finish(self.disk, self.directory, described, &producers.snapshot())
    }
}

/// Notes `batch` in the index of its segment, and how far it brought its producer.
fn add(batch: &Batch, builder: &mut Builder, producers: &mut Producers) {
    note(batch, batch.position, builder);
    if let Some(sequenced) = batch.header.sequenced {
        let count = u64::from(batch.header.count);
        producers.record(sequenced.producer, sequenced.epoch, sequenced.first, count);
    }
}

/// Notes in the index of a segment that `batch` stands at `position`.
pub(crate) fn note(batch: &Batch, position: u64, builder: &mut Builder) {
    let header = &batch.header;
    builder.add_batch(header.base_offset, position, header.taken);
    for record in &batch.records {
        if let Some(id) = record.known_by() {
            builder.add_id(id, record.offset);
        }
    }
    if let Some(sequenced) = header.sequenced {
        builder.add_range(range_of(header, sequenced));
    }
}

/// What a batch of an idempotent producer holds, for the index.
pub(crate) fn range_of(header: &BatchHeader, sequenced: Sequenced) -> ProducerRange {
    ProducerRange {
        producer: sequenced.producer,
        epoch: sequenced.epoch,
        first_sequence: sequenced.first,
        first_offset: header.base_offset,
        count: header.count,
    }
}

/// The last batches of a partition, of which no later one says that they were synced.
///
/// They can be read, and that proves nothing: a process that was killed had no time to sync them, and after a sync that
/// failed the system may hold bytes for good that never reached the disk. Nobody may see them before they have.
#[derive(Debug, Default)]
struct Doubtful {
    /// The first offset of each and where it stands, in order.
    batches: Vec<(u64, u64)>,
}

impl Doubtful {
    fn add(&mut self, batch: &Batch) {
        self.batches.retain(|(offset, _)| *offset >= batch.header.synced_before);
        self.batches.push((batch.header.base_offset, batch.position));
    }

    /// Writes them again, so that the system knows that it has to, and syncs the file. The room behind them is given
    /// back: if the zeros in it never reached the disk, what is written over them next could not be told from damage.
    fn make_durable(&self, disk: &dyn Disk, directory: &Path, reader: &SegmentReader, end: u64) -> Result<()> {
        let path = reader.path();
        let cut = || -> io::Result<()> {
            let file = disk.open(path, Access::Write)?;
            if file.length()? > end {
                file.set_length(end)?;
            }
            file.sync()
        };
        cut().map_err(failed("sync", path))?;
        let Some((_, position)) = self.batches.first() else { return Ok(()) };
        let bytes = reader.read_at(*position, end.saturating_sub(*position) as usize)?;
        let SegmentHeader { salt, base_offset, .. } = *reader.header();
        let tail = Tail { salt, base_offset, position: *position, bytes };
        match tail.keep(disk, directory) {
            // Without room for it they are written over themselves: readers can go on, and whoever makes room. Only a
            // power cut right now, after a sync that failed before, could make a batch look damaged that nobody was told of.
            Err(error) if is_full(&error) => {
                warn!(file = %path.display(), "there is no room to keep the last batches while they are made durable");
                durable::remove(disk, &directory.join(UNFINISHED))?;
            }
            kept => kept?,
        }
        tail.put_in_place(disk, directory)
    }
}

/// Reads every batch of the last segment and cuts what is unfinished behind them; answers with where they end.
fn recover_last(disk: &dyn Disk, reader: &mut SegmentReader, mut each: impl FnMut(&Batch)) -> Result<u64> {
    let bytes = reader.file_bytes()?;
    let defect = loop {
        match reader.next(bytes)? {
            Found::Batch(batch) => each(&batch),
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
