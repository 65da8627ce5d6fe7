//! The parsers of on-disk files as functions from bytes, for the fuzz targets in `fuzz/` and for `tests/corpus.rs`,
//! which replays their corpus. Only with the feature `fuzzing`.
//!
//! Each function reads arbitrary bytes as one file, in every way that the log does. It panics if a property of the
//! format is violated; refusing a file is never a violation. Most fuzz inputs fail at a checksum, so each input is
//! read a second time with corrected checksums (`sealed.rs`). The fields behind a checksum must not be trusted either,
//! since another build may have written them.

mod sealed;

use std::path::Path;
use std::sync::Arc;

use landfall_core::{GroupName, Timestamp, TopicName};

use crate::damage::scan::{Piece, SegmentScan};
use crate::disk::{self, Access, Disk};
use crate::group::file::GroupFile;
use crate::storage::batch::{self, Batch};
use crate::storage::index::memory_disk::MemoryDisk;
use crate::storage::index::{self, ExpectedSegment, IndexFile};
use crate::storage::reader::{NextBatch, SegmentReader};
use crate::storage::recovery::recover;
use crate::storage::segment::{self, SegmentHeader};
use crate::storage::start;
use crate::storage::tail::{self, TailBackup};
use crate::topic::file::{self as topic_file, TopicFile};
use crate::write::producers::Registry;

/// A segment of any partition.
pub fn segment(bytes: &[u8]) {
    read_segment(bytes);
    read_segment(&sealed::segment(bytes));
}

/// The index of a segment.
pub fn index(bytes: &[u8]) {
    read_index(bytes);
    read_index(&sealed::index(bytes));
}

/// The backup of a partition's last batches, which recovery keeps beside their segment.
pub fn tail(bytes: &[u8]) {
    read_tail(bytes);
    read_tail(&sealed::tail(bytes));
}

/// The saved offsets of a consumer group.
pub fn group(bytes: &[u8]) {
    let path = Path::new("group.json");
    if let Ok(file) = GroupFile::parse(bytes, path) {
        let (disk, folder) = MemoryDisk::new();
        let path = folder.join("group.json");
        assert!(file.write(&*disk, &path).is_ok(), "a parsed file cannot be written: {file:?}");
        let again = GroupFile::parse(&disk.content(&path), &path);
        assert_eq!(again.ok().as_ref(), Some(&file), "a written file parses differently");
    }
    // Fuzzed bytes almost never carry a right checksum, so build a file that does.
    let (Ok(group), Ok(topic)) = (GroupName::new("stock"), TopicName::new("orders")) else { return };
    let finished = bytes.chunks(8).map(|chunk| chunk.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)));
    let file = GroupFile::new(&group, &topic, finished.collect());
    let text = serde_json::json!(file).to_string();
    assert_eq!(GroupFile::parse(text.as_bytes(), path).ok(), Some(file), "a written file parses differently");
}

/// `topic.json`, and `start.json` of a partition.
pub fn topic(bytes: &[u8]) {
    let (disk, folder) = MemoryDisk::new();
    disk.put(&folder.join(topic_file::NAME), bytes.to_vec());
    if let Ok(Some(file)) = TopicFile::read(&*disk, &folder) {
        assert!(file.write(&*disk, &folder).is_ok(), "a parsed file cannot be written: {file:?}");
        assert_eq!(TopicFile::read(&*disk, &folder).ok().flatten(), Some(file), "a written file parses differently");
    }
    disk.put(&folder.join(start::NAME), bytes.to_vec());
    if let Ok(begins) = start::read(&*disk, &folder) {
        assert!(start::write(&*disk, &folder, &begins).is_ok(), "a parsed file cannot be written: {begins:?}");
        assert_eq!(start::read(&*disk, &folder).ok(), Some(begins), "a written file parses differently");
    }
}

/// The registry of idempotent producers.
pub fn producers(bytes: &[u8]) {
    let (disk, folder) = MemoryDisk::new();
    disk.put(&folder.join("producers.json"), bytes.to_vec());
    let Ok(mut registry) = Registry::open(disk.clone(), &folder) else { return };
    let Ok(name) = landfall_core::ProducerName::new("relay") else { return };
    if let Ok((id, epoch)) = registry.register(&name) {
        let again = Registry::open(disk, &folder).ok();
        assert_eq!(again.and_then(|again| again.epoch(id)), Some(epoch), "a registered producer is lost on reopening");
    }
}

fn read_segment(bytes: &[u8]) {
    let (memory, folder) = MemoryDisk::new();
    let disk: Arc<dyn Disk> = memory.clone();
    let (partition, base_offset) = (number(bytes, 12) as u32, number(bytes, 16));
    let path = segment::path(&folder, base_offset);
    memory.put(&path, bytes.to_vec());

    if let Ok(mut reader) = SegmentReader::open(&*disk, &folder, partition, base_offset) {
        while let Ok(NextBatch::Batch(batch)) = reader.next(bytes.len() as u64) {
            check(&batch, bytes, reader.header().salt);
        }
    }
    for limit in [None, Some(base_offset.saturating_add(10))] {
        scan(&*disk, &folder, partition, base_offset, limit, bytes);
    }
    // Recovery changes the file, so it comes last. Its result must recover again, to the same end.
    if let Ok(recovered) = recover(&disk, &folder, partition) {
        let left = memory.content(&path);
        assert!(bytes.starts_with(&left), "recovery wrote other bytes into the segment");
        let again = recover(&disk, &folder, partition).map(|again| again.next_offset);
        assert_eq!(again.ok(), Some(recovered.next_offset), "a second recovery ends at another offset");
    }
}

/// Scans the segment as `verify` and `repair` do.
fn scan(disk: &dyn Disk, folder: &Path, partition: u32, base_offset: u64, limit: Option<u64>, bytes: &[u8]) {
    let Ok(reader) = SegmentReader::open(disk, folder, partition, base_offset) else { return };
    let salt = reader.header().salt;
    let Ok(mut scan) = SegmentScan::new(reader, limit) else { return };
    // Every piece has at least one byte, so a longer scan would not terminate.
    for _ in 0..=bytes.len() {
        match scan.next() {
            Ok(Piece::Batch(batch)) => check(&batch, bytes, salt),
            Ok(Piece::End) | Err(_) => return,
            Ok(_) => {}
        }
    }
    panic!("the scan of {} bytes does not terminate", bytes.len());
}

/// Asserts that a served batch has a right checksum, computed here independently of the reader.
fn check(batch: &Batch, file: &[u8], salt: u32) {
    let start = batch.position as usize;
    let stored = file.get(start..start + batch.header.total_bytes()).unwrap_or_default();
    assert!(stored.len() >= batch::FRAME_BYTES, "served a batch that is not in the file");
    let computed = crc32c::crc32c_append(salt, &stored[8..]);
    assert_eq!(computed.to_le_bytes(), stored[4..8], "served a batch with a wrong checksum");
    let Ok(topic) = TopicName::new("orders") else { return };
    for record in &batch.records {
        let message = record.message(&topic);
        assert!(!(record.is_removed() && message.is_ok()), "served a removed message");
        let _ = record.key();
    }
    let count = batch.records.len() as u64;
    let offsets = batch.header.next_offset() - batch.header.base_offset;
    assert!(batch.header.is_lost() || count == offsets, "{count} records for {offsets} offsets");
}

fn read_index(bytes: &[u8]) {
    let (memory, folder) = MemoryDisk::new();
    let disk: Arc<dyn Disk> = memory.clone();
    let base_offset = number(bytes, 16);
    memory.put(&index::path(&folder, base_offset), bytes.to_vec());
    let expected = ExpectedSegment {
        salt: number(bytes, 8) as u32,
        partition: number(bytes, 12) as u32,
        end_offset: None,
        segment_bytes: number(bytes, 32),
    };
    let Ok(Some(index)) = IndexFile::open(&disk, &folder, base_offset, expected) else { return };
    assert!(index.memory_bytes() < 1024 + bytes.len(), "the index uses more memory than its file has bytes");
    let mut ids = Vec::new();
    assert!(index.for_each_id(|id, offset| ids.push((id, offset))).is_ok(), "a verified index cannot be read");
    for (id, offset) in ids {
        assert_eq!(index.find(id).ok().flatten(), Some(offset), "find misses an id that for_each_id lists");
    }
    for offset in [0, base_offset, number(bytes, 24), u64::MAX] {
        let _ = (index.position_for(offset), index.position_at_time(offset as i64));
        let _ = index.offsets_from(offset, offset);
    }
    for state in index.producers().unwrap_or_default() {
        let _ = index.offsets_from(state.producer, state.next_sequence.saturating_sub(1));
    }
}

/// Puts the backup beside the segment it names. That segment holds only zeros, sometimes more than up to the backup's
/// position.
fn read_tail(bytes: &[u8]) {
    let (memory, folder) = MemoryDisk::new();
    let disk: Arc<dyn Disk> = memory.clone();
    let (salt, base_offset, created) = (number(bytes, 8) as u32, number(bytes, 16), Timestamp::from_millis(0));
    let header =
        SegmentHeader { salt, partition: 0, base_offset, previous: None, created, original_bytes: None }.encode();
    let zeros = number(bytes, 24).saturating_sub(header.len() as u64).min(1000) as usize + bytes.len() % 100;
    let (path, before) = (segment::path(&folder, base_offset), [&header[..], &vec![0; zeros]].concat());
    memory.put(&path, before.clone());
    memory.put(&tail::path(&folder), bytes.to_vec());

    let Ok(Some(tail)) = TailBackup::load(&*disk, &folder) else {
        assert!(tail::restore(&*disk, &folder).is_err(), "an invalid backup was restored");
        assert!(recover(&disk, &folder, 0).is_err(), "recovery ignored an invalid backup");
        assert_eq!(memory.content(&path), before, "an invalid backup changed the segment");
        assert_eq!(memory.content(&tail::path(&folder)), bytes, "an invalid backup was removed");
        return;
    };
    let Ok(file) = disk.open(&path, Access::Read) else { return };
    let overlay = tail.overlay(file);
    let seen = disk::read(&*overlay, 0, before.len() + bytes.len()).unwrap_or_default();
    assert!(tail::restore(&*disk, &folder).is_ok(), "a valid backup was not restored");
    assert_eq!(memory.content(&path), seen, "the overlay differs from the restored segment");
    assert!(matches!(TailBackup::read(&*disk, &folder), Ok(None)), "the backup is still there after it was restored");
    if let Ok(recovered) = recover(&disk, &folder, 0) {
        assert!(seen.starts_with(&memory.content(&path)), "recovery wrote other bytes into the segment");
        let again = recover(&disk, &folder, 0).map(|again| again.next_offset);
        assert_eq!(again.ok(), Some(recovered.next_offset), "a second recovery ends at another offset");
    }
}

/// Reads the eight bytes at `at` as a number; 0 if the file is shorter.
fn number(bytes: &[u8], at: usize) -> u64 {
    let field = bytes.get(at..).and_then(<[u8]>::first_chunk);
    field.map_or(0, |field| u64::from_le_bytes(*field))
}
