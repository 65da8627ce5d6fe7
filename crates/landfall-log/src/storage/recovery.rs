//! Recovery of a partition's files when a log is opened.
//!
//! A process may die, or the power may fail, during a write. That leaves an **unfinished tail**: bytes at the end of
//! the last segment that were never synced, and so never acknowledged as synced. Recovery truncates them. Every other
//! deviation is **damage**: the log refuses to open and reports file and position, and an operator decides.
//!
//! Two criteria separate them: the shape of an unfinished write (see `batch.rs`), and proof by later batches. Each
//! batch records the offset below which everything was synced when it was written. A batch that looks unfinished is
//! damaged if a later batch proves that it was synced. Damage is also
//!
//! * a bad batch in any segment but the last, since a segment is started only after its predecessor was synced,
//! * a segment whose size differs from the one its successor recorded, or that is missing,
//! * a group that has acknowledged more than is stored ([`crate::group::progress`]).
//!
//! Undetectable: synced batches just before a crash of which no byte is left. That takes a disk that confirms a sync
//! and loses the data.
//!
//! The batches of earlier segments are not read here, unless their index must be rebuilt. A reader that meets a bad
//! batch reports it, and `damage/verify.rs` reads them all.

use std::io;
use std::path::Path;
use std::sync::Arc;

use landfall_core::Result;
use tracing::warn;

use crate::disk::{Access, Disk};
use crate::durable::{self, UNFINISHED, damaged, failed, is_full};
use crate::storage::batch::{Batch, BatchHeader, Sequenced};
use crate::storage::index::{self, Builder, ExpectedSegment, IndexFile, IndexedSegment, ProducerRange};
use crate::storage::partition::{Recovered, Segment};
use crate::storage::reader::{NextBatch, SegmentReader};
use crate::storage::rewrite::REWRITTEN;
use crate::storage::segment::{self, Extent, SegmentHeader};
use crate::storage::start::{self, Start};
use crate::storage::tail::{self, TailBackup};
use crate::write::producers::Producers;

/// Checks the partition in `directory`, completes interrupted changes, and truncates an unfinished tail.
pub(crate) fn recover(disk: &Arc<dyn Disk>, directory: &Path, partition: u32) -> Result<Recovered> {
    durable::remove(&**disk, &directory.join(UNFINISHED))?;
    durable::remove(&**disk, &directory.join(REWRITTEN))?;
    tail::restore(&**disk, directory)?;
    let Start { offset: start, producers } = start::read(&**disk, directory)?;
    let bases = remove_before_start(&**disk, directory, start)?;
    let Some((&last, finished)) = bases.split_last() else {
        if start > 0 {
            let sentence = format!("the partition starts at offset {start}, but it has no segment");
            return Err(damaged(&segment::path(directory, start), 0, sentence));
        }
        return Ok(Recovered::empty());
    };
    let headers = check_chain(&**disk, directory, partition, &bases, start)?;
    let (mut segments, mut producers) = (Vec::with_capacity(bases.len()), Producers::from_snapshot(&producers));
    for (index, &base_offset) in finished.iter().enumerate() {
        let segment = FinishedSegment { disk, directory, header: headers[index], end_offset: bases[index + 1] };
        let index = segment.index(&producers)?;
        let bytes = durable::file_bytes(&**disk, &segment::path(directory, base_offset))?;
        producers = Producers::from_snapshot(&index.producers()?);
        let created = headers[segments.len()].created;
        segments.push(Segment { extent: Extent { base_offset, bytes }, created, index: Some(Arc::new(index)) });
    }
    let mut reader = SegmentReader::open(&**disk, directory, partition, last)?;
    let mut unfinished = Builder::new(last);
    let mut unconfirmed = UnconfirmedTail::default();
    let bytes = recover_last(&**disk, &mut reader, |batch| {
        unconfirmed.add(batch);
        replay(batch, &mut unfinished, &mut producers);
    })?;
    unconfirmed.make_durable(&**disk, directory, &reader, bytes)?;
    durable::sync_directory(&**disk, directory)?;
    let created = reader.header().created;
    segments.push(Segment { extent: Extent { base_offset: last, bytes }, created, index: None });
    let next_offset = reader.next_offset();
    Ok(Recovered { segments, next_offset, unfinished, producers: producers.snapshot() })
}

/// Returns the first offsets of the segments from `start` on. Removes earlier segments, whose removal was interrupted.
fn remove_before_start(disk: &dyn Disk, directory: &Path, start: u64) -> Result<Vec<u64>> {
    let mut bases = segment::list(disk, directory)?;
    // A process may have died before it synced `start.json`, which must be durable before a segment is removed.
    if bases.first().is_some_and(|first| *first < start) {
        durable::sync_directory(disk, directory)?;
    }
    for base_offset in bases.extract_if(.., |base_offset| *base_offset < start) {
        durable::remove(disk, &segment::path(directory, base_offset))?;
        durable::remove(disk, &index::path(directory, base_offset))?;
    }
    Ok(bases)
}

/// Returns the headers of all segments, after checking that each continues its predecessor.
fn check_chain(
    disk: &dyn Disk,
    directory: &Path,
    partition: u32,
    bases: &[u64],
    start: u64,
) -> Result<Vec<SegmentHeader>> {
    let mut headers = Vec::with_capacity(bases.len());
    let mut previous: Option<Extent> = None;
    for &base_offset in bases {
        let path = segment::path(directory, base_offset);
        let file = disk.open(&path, Access::Read).map_err(failed("open", &path))?;
        let header = SegmentHeader::read(&*file, &path, partition, base_offset)?;
        // The predecessor of the first segment was removed by retention.
        let is_start = headers.is_empty() && start > 0 && base_offset == start;
        if header.previous != previous && !is_start {
            return Err(damaged(
                &path,
                0,
                format!("it continues {}, but its predecessor is {}", describe(header.previous), describe(previous)),
            ));
        }
        // A rewritten segment has another size than its successor recorded.
        let bytes = file.length().map_err(failed("read the size of", &path))?;
        if header.original_bytes.is_some() && bases.last() == Some(&base_offset) {
            let missing = "the segment that followed this one when it was rewritten is missing";
            return Err(damaged(&path, bytes, missing));
        }
        previous = Some(Extent { base_offset, bytes: header.original_bytes.unwrap_or(bytes) });
        headers.push(header);
    }
    Ok(headers)
}

fn describe(extent: Option<Extent>) -> String {
    extent.map_or("no segment".to_owned(), |Extent { base_offset, bytes }| {
        format!("the segment from offset {base_offset} with {bytes} bytes")
    })
}

/// A segment that has a successor.
struct FinishedSegment<'a> {
    disk: &'a Arc<dyn Disk>,
    directory: &'a Path,
    header: SegmentHeader,
    /// The first offset of its successor.
    end_offset: u64,
}

impl FinishedSegment<'_> {
    /// Opens its index, or rebuilds it; `before` is the state of the producers at its start.
    fn index(&self, before: &Producers) -> Result<IndexFile> {
        let SegmentHeader { salt, partition, base_offset, .. } = self.header;
        let path = segment::path(self.directory, base_offset);
        let segment_bytes = durable::file_bytes(&**self.disk, &path)?;
        let expected = ExpectedSegment { salt, partition, end_offset: Some(self.end_offset), segment_bytes };
        if let Some(index) = IndexFile::open(self.disk, self.directory, base_offset, expected)? {
            return Ok(index);
        }
        let mut reader = SegmentReader::open(&**self.disk, self.directory, partition, base_offset)?;
        let (mut builder, mut producers) = (Builder::new(base_offset), Producers::from_snapshot(&before.snapshot()));
        loop {
            match reader.next(segment_bytes)? {
                NextBatch::Batch(batch) => replay(&batch, &mut builder, &mut producers),
                NextBatch::End if reader.next_offset() == self.end_offset => break,
                NextBatch::End => return Err(reader.damaged("the segment ends before the next one begins")),
                NextBatch::Bad(defect) => return Err(reader.damaged(defect)),
            }
        }
        let indexed = IndexedSegment { salt, partition, end_offset: self.end_offset, segment_bytes };
        builder.finish(self.disk, self.directory, indexed, &producers.snapshot())
    }
}

/// Adds `batch` to the index of its segment, and advances the state of its producer.
fn replay(batch: &Batch, builder: &mut Builder, producers: &mut Producers) {
    index_batch(batch, batch.position, builder);
    if let Some(sequenced) = batch.header.sequenced {
        let count = u64::from(batch.header.count);
        producers.record(sequenced.producer, sequenced.epoch, sequenced.first, count);
    }
}

/// Adds `batch`, located at `position`, to the index of a segment.
pub(crate) fn index_batch(batch: &Batch, position: u64, builder: &mut Builder) {
    let header = &batch.header;
    builder.add_batch(header.base_offset, position, header.appended_at);
    for record in &batch.records {
        if let Some(id) = record.dedup_id() {
            builder.add_id(id, record.offset);
        }
    }
    if let Some(sequenced) = header.sequenced {
        builder.add_range(producer_range(header, sequenced));
    }
}

/// The index entry for a batch of an idempotent producer.
pub(crate) fn producer_range(header: &BatchHeader, sequenced: Sequenced) -> ProducerRange {
    ProducerRange {
        producer: sequenced.producer,
        epoch: sequenced.epoch,
        first_sequence: sequenced.first,
        first_offset: header.base_offset,
        count: header.count,
    }
}

/// The last batches of a partition, which no later batch proves to be synced.
///
/// That they can be read proves nothing. A killed process may not have synced them, and after a failed sync the page
/// cache may hold bytes that never reached the disk. They must be durable before readers see them.
#[derive(Debug, Default)]
struct UnconfirmedTail {
    /// The first offset and position of each, in order.
    batches: Vec<(u64, u64)>,
}

impl UnconfirmedTail {
    fn add(&mut self, batch: &Batch) {
        self.batches.retain(|(offset, _)| *offset >= batch.header.synced_before);
        self.batches.push((batch.header.base_offset, batch.position));
    }

    /// Rewrites the batches, so that the operating system marks their pages dirty again, and syncs the file. Truncates
    /// the space after them: if its zeros never reached the disk, a torn write over it would look like damage.
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
        let tail = TailBackup { salt, base_offset, position: *position, bytes };
        match tail.save(disk, directory) {
            // Without space for the backup, overwrite them in place, so that readers can continue and the operator can
            // free space. The remaining risk is a power cut right now, after an earlier failed sync. It could make an
            // unacknowledged batch look damaged.
            Err(error) if is_full(&error) => {
                warn!(file = %path.display(), "disk full: rewriting the last batches without a backup");
                durable::remove(disk, &directory.join(UNFINISHED))?;
            }
            kept => kept?,
        }
        tail.apply(disk, directory)
    }
}

/// Reads every batch of the last segment and truncates an unfinished tail. Returns the end of the last batch.
fn recover_last(disk: &dyn Disk, reader: &mut SegmentReader, mut each: impl FnMut(&Batch)) -> Result<u64> {
    let bytes = reader.file_bytes()?;
    let defect = loop {
        match reader.next(bytes)? {
            NextBatch::Batch(batch) => each(&batch),
            NextBatch::End => return Ok(bytes),
            NextBatch::Bad(defect) => break defect,
        }
    };
    if !defect.is_unfinished() {
        return Err(reader.damaged(defect));
    }
    let (path, position, rest) = (reader.path(), reader.position(), reader.rest(bytes)?);
    // Preallocated space for later batches.
    if rest.iter().all(|byte| *byte == 0) {
        return Ok(position);
    }
    if reader.was_synced(&rest) {
        return Err(reader.damaged(format!("{defect}, but a later batch proves that it was synced")));
    }
    warn!(
        file = %path.display(), position, cut_bytes = rest.len(), reason = %defect,
        "truncated an unfinished write at the end of the log"
    );
    let cut = || -> io::Result<()> {
        let file = disk.open(path, Access::Write)?;
        file.set_length(position)?;
        file.sync()
    };
    cut().map_err(failed("truncate the unfinished tail of", path))?;
    Ok(position)
}
