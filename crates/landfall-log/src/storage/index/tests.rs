use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use landfall_core::{ErrorKind, MessageId};
use proptest::prelude::*;

use super::header::{HEADER_BYTES, Header};
use super::memory_disk::MemoryDisk;
use super::*;
use crate::disk::Disk;
use crate::write::producers::ProducerState;

const BASE: u64 = 1000;
const SALT: u32 = 0x5a17;

fn id(number: u128) -> MessageId {
    MessageId::from_bytes(number.to_be_bytes())
}

fn indexed(end_offset: u64, segment_bytes: u64) -> (IndexedSegment, ExpectedSegment) {
    let (salt, partition) = (SALT, 3);
    let expected = ExpectedSegment { salt, partition, end_offset: Some(end_offset), segment_bytes };
    (IndexedSegment { salt, partition, end_offset, segment_bytes }, expected)
}

/// One batch of a segment: producer (0 for none), number of messages, bytes, time.
type Batch = (u64, u32, u64, i64);

/// A simple model of a segment's content.
#[derive(Debug, Default)]
struct Model {
    batches: Vec<(u64, u64, i64)>,
    ids: BTreeMap<u128, u64>,
    sequences: HashMap<(u64, u64), u64>,
    producers: BTreeMap<u64, u64>,
    end_offset: u64,
    bytes: u64,
}

/// Adds `batches` to a builder. The ids cycle through `numbers`.
fn build(batches: &[Batch], numbers: &[u128]) -> (Builder, Model) {
    let (mut builder, mut model) = (Builder::new(BASE), Model { end_offset: BASE, bytes: 64, ..Model::default() });
    let mut numbers = numbers.iter().cycle();
    for &(producer, count, bytes, time) in batches {
        builder.add_batch(model.end_offset, model.bytes, time);
        model.batches.push((model.end_offset, model.bytes, time));
        if producer > 0 {
            let next = model.producers.entry(producer).or_default();
            let (first_sequence, first_offset) = (*next, model.end_offset);
            builder.add_range(ProducerRange { producer, epoch: 1, first_sequence, first_offset, count });
            for index in 0..u64::from(count) {
                model.sequences.insert((producer, first_sequence + index), first_offset + index);
            }
            *next += u64::from(count);
        }
        for offset in model.end_offset..model.end_offset + u64::from(count) {
            let number = *numbers.next().unwrap();
            builder.add_id(id(number), offset);
            model.ids.entry(number).or_insert(offset);
        }
        model.end_offset += u64::from(count);
        model.bytes += bytes;
    }
    (builder, model)
}

fn finish(builder: &mut Builder, model: &Model) -> (Arc<MemoryDisk>, PathBuf, ExpectedSegment, IndexFile) {
    let (memory, folder) = MemoryDisk::new();
    let disk: Arc<dyn Disk> = memory.clone();
    let (segment, expected) = indexed(model.end_offset, model.bytes);
    let states: Vec<_> = states(model).into_iter().rev().collect();
    let index = builder.finish(&disk, &folder, segment, &states).unwrap();
    (memory, folder, expected, index)
}

fn states(model: &Model) -> Vec<ProducerState> {
    let state = |(&producer, &next_sequence)| ProducerState { producer, epoch: 1, next_sequence };
    model.producers.iter().map(state).collect()
}

fn open(memory: &Arc<MemoryDisk>, folder: &Path, expected: ExpectedSegment) -> Option<IndexFile> {
    let disk: Arc<dyn Disk> = memory.clone();
    IndexFile::open(&disk, folder, BASE, expected).unwrap()
}

fn assert_answers(index: &IndexFile, builder: &Builder, model: &Model) {
    assert_eq!((index.base_offset(), index.end_offset()), (BASE, model.end_offset));
    let mut ids = Vec::new();
    index.for_each_id(|id, offset| ids.push((u128::from_be_bytes(*id.as_bytes()), offset))).unwrap();
    assert_eq!(ids, model.ids.clone().into_iter().collect::<Vec<_>>());
    assert_eq!(index.id_count() as usize, ids.len());
    for &number in model.ids.keys() {
        for number in [number.wrapping_sub(1), number, number.wrapping_add(1)] {
            assert_eq!(index.find(id(number)).unwrap(), model.ids.get(&number).copied());
        }
    }
    for producer in 0..6 {
        for sequence in 0..=model.producers.get(&producer).copied().unwrap_or_default() {
            let offset = model.sequences.get(&(producer, sequence)).copied();
            assert_eq!(index.offsets_from(producer, sequence).unwrap().map(|offsets| offsets.start), offset);
            assert_eq!(builder.offsets_from(producer, sequence).map(|offsets| offsets.start), offset);
        }
    }
    assert_eq!(index.producers().unwrap(), states(model));
    for offset in BASE - 1..=model.end_offset {
        assert_eq!(index.position_for(offset), builder.position_for(offset));
    }
    for time in -1..12 {
        assert_eq!(index.position_at_time(time), builder.position_at_time(time));
    }
    assert_eq!(index.latest_time(), model.batches.iter().map(|batch| batch.2).max());
}

fn any_batches(number: usize) -> impl Strategy<Value = Vec<Batch>> {
    proptest::collection::vec((0..4_u64, 1..6_u32, 100..40_000_u64, 0..10_i64), 0..number)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn built_index_matches_the_model_before_and_after_reopening(
        batches in any_batches(300),
        numbers in proptest::collection::vec(prop_oneof![any::<u128>(), 0..50_u128], 1..1000),
    ) {
        let (mut builder, model) = build(&batches, &numbers);
        let (memory, folder, expected, index) = finish(&mut builder, &model);
        assert_answers(&index, &builder, &model);
        assert_answers(&open(&memory, &folder, expected).unwrap(), &builder, &model);
        let opened = open(&memory, &folder, ExpectedSegment { end_offset: None, ..expected });
        prop_assert_eq!(opened.unwrap().end_offset(), model.end_offset);
    }

    #[test]
    fn arbitrary_bytes_after_a_header_are_not_an_index(
        mut header in any::<[u8; HEADER_BYTES]>(),
        counts in any::<[u8; 4]>(),
        is_small in any::<bool>(),
        rest in proptest::collection::vec(any::<u8>(), 0..9000),
    ) {
        // The header's checksum is right, so that its fields pass the first check.
        header[..4].copy_from_slice(b"LFI\x01");
        header[64..].fill(0);
        if is_small {
            counts.iter().zip([48, 52, 56, 60]).for_each(|(&count, at)| {
                header[at..at + 4].copy_from_slice(&[count % 4, 0, 0, 0]);
            });
        }
        let checksum = crc32c::crc32c(&header[8..]).to_le_bytes();
        header[4..8].copy_from_slice(&checksum);
        let decoded = Header::decode(&header).unwrap();
        prop_assert_eq!(decoded.encode(), header);
        let Header { salt, partition, base_offset, segment_bytes, .. } = decoded;
        let (memory, folder) = MemoryDisk::new();
        let mut content = [header.as_slice(), &rest].concat();
        if is_small && decoded.positions > 0 {
            // The expected length, so that the pages are read.
            content.resize(decoded.file_bytes() as usize, 7);
        }
        memory.put(&path(&folder, base_offset), content);
        let expected = ExpectedSegment { salt, partition, end_offset: None, segment_bytes };
        let disk: Arc<dyn Disk> = memory;
        let is_empty = decoded.file_bytes() == (HEADER_BYTES + rest.len()) as u64 && rest.is_empty();
        prop_assert_eq!(IndexFile::open(&disk, &folder, base_offset, expected).unwrap().is_some(), is_empty);
    }
}

/// A segment in which every table has more than one page.
fn several_pages() -> (Builder, Model) {
    let batches: Vec<Batch> = (0..500).map(|index| (1 + index % 2, 2, 33_000, index as i64 / 100)).collect();
    let numbers: Vec<u128> = (0..1000_u128).map(|index| index.wrapping_mul(0x9e37_79b9_7f4a_7c15 << 60)).collect();
    build(&batches, &numbers)
}

#[test]
fn flipped_bits_and_wrong_lengths_are_detected() {
    let batches = [(1, 2, 100, 5), (2, 1, 40_000, 6), (1, 3, 100, 4)];
    let (mut builder, model) = build(&batches, &[7, 0, u128::MAX, 9, 1 << 100, 3]);
    let (memory, folder, expected, _) = finish(&mut builder, &model);
    let path = path(&folder, BASE);
    let good = memory.content(&path);
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        memory.put(&path, bad);
        assert!(open(&memory, &folder, expected).is_none(), "bit {bit}");
    }
    for length in (0..good.len()).chain([good.len() + 1]) {
        let mut bad = good.clone();
        bad.resize(length, 0);
        memory.put(&path, bad);
        assert!(open(&memory, &folder, expected).is_none(), "{length} bytes");
    }
    memory.put(&path, good);
    assert!(open(&memory, &folder, expected).is_some());
}

#[test]
fn page_damaged_later_is_reported_and_the_others_stay_readable() {
    let (mut builder, model) = several_pages();
    let (memory, folder, _, index) = finish(&mut builder, &model);
    assert_answers(&index, &builder, &model);
    let path = path(&folder, BASE);
    let mut bytes = memory.content(&path);
    // The middle of the file holds ids.
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    memory.put(&path, bytes);
    let (mut good, mut bad) = (0, 0);
    for (&number, &offset) in &model.ids {
        match index.find(id(number)) {
            Ok(found) => {
                assert_eq!(found, Some(offset));
                good += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt);
                bad += 1;
            }
        }
    }
    assert_eq!((good, bad), (1000 - 204, 204));
    assert_eq!(index.for_each_id(|_, _| ()).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn swapped_pages_are_detected() {
    let (mut builder, model) = several_pages();
    let (memory, folder, expected, _) = finish(&mut builder, &model);
    let path = path(&folder, BASE);
    let mut bytes = memory.content(&path);
    let ids = HEADER_BYTES + super::page::table_bytes::<BatchPosition>(builder.positions.entries.len() as u32) as usize;
    let (first, second) = bytes[ids..ids + 8192].split_at_mut(4096);
    first.swap_with_slice(second);
    memory.put(&path, bytes);
    assert!(open(&memory, &folder, expected).is_none());
}

#[test]
fn index_of_another_segment_is_refused() {
    let (mut builder, model) = build(&[(1, 2, 100, 5)], &[1, 2]);
    let (memory, folder, expected, _) = finish(&mut builder, &model);
    let others = [
        ExpectedSegment { salt: SALT + 1, ..expected },
        ExpectedSegment { partition: 4, ..expected },
        ExpectedSegment { end_offset: Some(model.end_offset + 1), ..expected },
        ExpectedSegment { segment_bytes: model.bytes + 1, ..expected },
    ];
    assert!(others.into_iter().all(|other| open(&memory, &folder, other).is_none()));
    let content = memory.content(&path(&folder, BASE));
    memory.put(&path(&folder, BASE + 1), content);
    let disk: Arc<dyn Disk> = memory.clone();
    assert!(IndexFile::open(&disk, &folder, BASE + 1, expected).unwrap().is_none());
    assert!(IndexFile::open(&disk, &folder, BASE + 2, expected).unwrap().is_none());
}

#[test]
fn ranges_merge_only_if_sequence_offset_and_epoch_continue() {
    let range = |producer, epoch, first_sequence, first_offset, count| ProducerRange {
        producer,
        epoch,
        first_sequence,
        first_offset,
        count,
    };
    let mut builder = Builder::new(0);
    for added in [
        range(1, 0, 0, 0, 2),
        range(1, 0, 2, 2, 3),
        range(1, 1, 5, 5, 1),
        range(2, 0, 6, 6, 1),
        range(1, 1, 6, 7, 1),
        range(1, 1, 9, 8, 1),
        range(1, 1, 10, 10, 1),
    ] {
        builder.add_range(added);
    }
    let (disk, folder) = MemoryDisk::new();
    let disk: Arc<dyn Disk> = disk;
    let index = builder.finish(&disk, &folder, indexed(11, 64).0, &[]).unwrap();
    let expected = [Some(0), Some(1), Some(2), Some(3), Some(4), Some(5), Some(7), None, None, Some(8), Some(10), None];
    for (sequence, offset) in (0..).zip(expected) {
        assert_eq!(index.offsets_from(1, sequence).unwrap().map(|offsets| offsets.start), offset);
    }
    assert_eq!(index.offsets_from(2, 6).unwrap().map(|offsets| offsets.start), Some(6));
    assert_eq!(index.offsets_from(0, 0).unwrap(), None);
    // Six ranges of 32 bytes in one page, and nothing else.
    assert_eq!(table_bytes_of(&index), 6 * 32 + 16);
}

fn table_bytes_of(index: &IndexFile) -> u64 {
    index.file_bytes() - HEADER_BYTES as u64
}

#[test]
fn offset_beyond_the_format_is_refused() {
    for offset in [BASE - 1, BASE + u64::from(u32::MAX) + 1] {
        let mut builder = Builder::new(BASE);
        builder.add_id(id(1), offset);
        let (disk, folder) = MemoryDisk::new();
        let disk: Arc<dyn Disk> = disk;
        let refused = builder.finish(&disk, &folder, indexed(offset + 1, 64).0, &[]);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Internal);
    }
}
