use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use landfall_core::ErrorKind;
use proptest::prelude::*;

use super::*;
use crate::disk::Disk;
use crate::storage::index::memory_disk::MemoryDisk;
use crate::storage::index::{self, Builder, IndexedSegment};

fn id(number: u128) -> MessageId {
    MessageId::from_bytes(number.to_be_bytes())
}

/// The folder of the index files of a partition.
fn folder(partition: u32) -> PathBuf {
    PathBuf::from(format!("{partition}"))
}

/// Writes the index of a segment with these ids at the offsets from `base_offset` on.
fn write_index(disk: &Arc<dyn Disk>, partition: u32, base_offset: u64, ids: &[MessageId]) -> Arc<IndexFile> {
    let mut builder = Builder::new(base_offset);
    (base_offset..).zip(ids).for_each(|(offset, id)| builder.add_id(*id, offset));
    let end_offset = base_offset + ids.len() as u64;
    let segment = IndexedSegment { salt: 1, partition, end_offset, segment_bytes: 64 };
    Arc::new(builder.finish(disk, &folder(partition), segment, &[]).unwrap())
}

/// An event in the life of a topic's ids.
#[derive(Debug, Clone)]
enum Step {
    Publish {
        partition: u32,
        number: u128,
    },
    /// The last message of a partition was refused.
    Refuse {
        partition: u32,
    },
    Finish {
        partition: u32,
    },
    /// The first finished segment of a partition is deleted.
    Delete {
        partition: u32,
    },
    Reopen,
}

fn any_step() -> impl Strategy<Value = Step> {
    let partition = 0..3_u32;
    prop_oneof![
        20 => (partition.clone(), prop_oneof![0..40_u128, any::<u128>()])
            .prop_map(|(partition, number)| Step::Publish { partition, number }),
        1 => partition.clone().prop_map(|partition| Step::Refuse { partition }),
        3 => partition.clone().prop_map(|partition| Step::Finish { partition }),
        2 => partition.prop_map(|partition| Step::Delete { partition }),
        1 => Just(Step::Reopen),
    ]
}

/// A topic, with a plain map of its ids as the model.
struct Topic {
    disk: Arc<dyn Disk>,
    dedup: DedupIndex,
    expected: BTreeMap<u128, Position>,
    /// By partition: finished segments, then the ids of the unfinished one with its first offset.
    finished: [Vec<(u64, Arc<IndexFile>)>; 3],
    unfinished: [(u64, Vec<MessageId>); 3],
}

impl Topic {
    fn new() -> Self {
        let (disk, _) = MemoryDisk::new();
        let (finished, unfinished) = Default::default();
        Self { disk, dedup: DedupIndex::new(), expected: BTreeMap::new(), finished, unfinished }
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Publish { partition, number } => {
                let (base_offset, ids) = &mut self.unfinished[partition as usize];
                let position = Position { partition, offset: *base_offset + ids.len() as u64 };
                let found = self.dedup.find_or_insert(id(number), position).unwrap();
                assert_eq!(found, self.expected.get(&number).copied());
                if found.is_some() {
                    return;
                }
                ids.push(id(number));
                self.expected.insert(number, position);
            }
            Step::Refuse { partition } => {
                if let Some(refused) = self.unfinished[partition as usize].1.pop() {
                    self.dedup.remove(refused);
                    self.expected.remove(&u128::from_be_bytes(*refused.as_bytes()));
                }
            }
            Step::Finish { partition } => {
                let (base_offset, ids) = &mut self.unfinished[partition as usize];
                let index = write_index(&self.disk, partition, *base_offset, ids);
                self.dedup.seal(partition, *base_offset, Arc::clone(&index)).unwrap();
                // An empty segment has no offsets, so its successor would have the same name.
                if !ids.is_empty() {
                    self.finished[partition as usize].push((*base_offset, index));
                    *base_offset += ids.len() as u64;
                    ids.clear();
                }
            }
            Step::Delete { partition } => {
                let finished = &mut self.finished[partition as usize];
                if !finished.is_empty() {
                    let (base_offset, index) = finished.remove(0);
                    self.dedup.forget(partition, base_offset);
                    let deleted = base_offset..index.end_offset();
                    self.expected.retain(|_, at| at.partition != partition || !deleted.contains(&at.offset));
                }
            }
            Step::Reopen => self.reopen(),
        }
    }

    fn reopen(&mut self) {
        self.dedup = DedupIndex::new();
        for partition in 0..3_u32 {
            for (base_offset, index) in &self.finished[partition as usize] {
                self.dedup.add_sealed(partition, *base_offset, Arc::clone(index)).unwrap();
            }
            let (base_offset, ids) = &self.unfinished[partition as usize];
            for (offset, id) in (*base_offset..).zip(ids) {
                self.dedup.insert(*id, Position { partition, offset });
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn id_is_found_exactly_while_its_message_is_stored(steps in proptest::collection::vec(any_step(), 1..150)) {
        let mut topic = Topic::new();
        for step in steps {
            topic.apply(step);
            prop_assert_eq!(topic.dedup.len(), topic.expected.len());
        }
        let others = (0..40).chain([u128::MAX]);
        let numbers: Vec<_> = topic.expected.keys().copied().chain(others).collect();
        for number in numbers {
            prop_assert_eq!(topic.dedup.find(id(number)).unwrap(), topic.expected.get(&number).copied());
        }
    }
}

#[test]
fn finished_segments_leave_the_map_and_deleted_ones_free_memory() {
    let (mut topic, mut number) = (Topic::new(), 0);
    let empty = topic.dedup.memory_bytes();
    for round in 0..70 {
        for _ in 0..100 {
            topic.apply(Step::Publish { partition: 1, number });
            number += 1;
        }
        topic.apply(Step::Finish { partition: 1 });
        assert_eq!(topic.dedup.recent.len(), 0);
        assert_eq!(topic.dedup.len(), (round + 1) * 100);
    }
    for left in (0..70).rev() {
        topic.apply(Step::Delete { partition: 1 });
        assert_eq!(topic.dedup.len(), left * 100);
    }
    assert_eq!(topic.dedup.index_bytes, 0);
    assert!(topic.dedup.memory_bytes() < empty + 16 * 1024);
}

#[test]
fn rewritten_segment_replaces_its_old_ids() {
    let (disk, _) = MemoryDisk::new();
    let disk: Arc<dyn Disk> = disk;
    let mut dedup = DedupIndex::new();
    dedup.add_sealed(0, 0, write_index(&disk, 0, 0, &[id(1), id(2)])).unwrap();
    dedup.add_sealed(0, 0, write_index(&disk, 0, 0, &[id(1), id(3)])).unwrap();
    assert_eq!(dedup.len(), 2);
    assert_eq!(dedup.find(id(3)).unwrap(), Some(Position { partition: 0, offset: 1 }));
    assert_eq!(dedup.find(id(2)).unwrap(), None);
    dedup.forget(0, 0);
    assert_eq!((dedup.len(), dedup.find(id(1)).unwrap()), (0, None));
}

#[test]
fn damaged_index_is_an_error_and_changes_nothing() {
    let (memory, _) = MemoryDisk::new();
    let disk: Arc<dyn Disk> = memory.clone();
    let mut dedup = DedupIndex::new();
    let position = Position { partition: 0, offset: 0 };
    dedup.insert(id(1), position);
    let index = write_index(&disk, 0, 0, &[id(1)]);
    let path = index::path(&folder(0), 0);
    let good = memory.content(&path);
    memory.put(&path, vec![0; good.len()]);
    assert_eq!(dedup.seal(0, 0, Arc::clone(&index)).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!((dedup.len(), dedup.find(id(1)).unwrap()), (1, Some(position)));
    memory.put(&path, good.clone());
    dedup.seal(0, 0, index).unwrap();
    assert_eq!((dedup.len(), dedup.find(id(1)).unwrap()), (1, Some(position)));
    memory.put(&path, vec![0; good.len()]);
    assert_eq!(dedup.find(id(1)).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(dedup.find(id(2)).unwrap(), None);
}

/// `cargo test -p landfall-log --release --lib -- --ignored --nocapture ten_million`
///
/// Rounds are short and the median counts, so that other load on the machine does not distort the result.
#[test]
#[ignore = "a measurement, for a release build"]
fn ten_million_live_ids_are_looked_up_within_the_budget() {
    const SEGMENT: u64 = 65_536;
    const SEGMENTS: u64 = 153;
    const ROUND: usize = 512;
    let directory = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(crate::disk::SystemDisk);
    let (mut dedup, mut taking, mut indexing, mut sealing) = (DedupIndex::new(), Vec::new(), Vec::new(), Vec::new());
    for segment in 0..SEGMENTS + 20 {
        let base_offset = segment * SEGMENT;
        let ids: Vec<_> = (0..SEGMENT).map(|_| MessageId::new()).collect();
        for (round, ids) in ids.chunks(ROUND).enumerate() {
            let began = Instant::now();
            for (offset, id) in (base_offset + (round * ROUND) as u64..).zip(ids) {
                assert_eq!(dedup.find_or_insert(*id, Position { partition: 0, offset }).unwrap(), None);
            }
            taking.push(began.elapsed().as_nanos() as u64 / ROUND as u64);
        }
        let began = Instant::now();
        let mut builder = Builder::new(base_offset);
        (base_offset..).zip(&ids).for_each(|(offset, id)| builder.add_id(*id, offset));
        let indexed = IndexedSegment { salt: 1, partition: 0, end_offset: base_offset + SEGMENT, segment_bytes: 64 };
        let index = Arc::new(builder.finish(&disk, directory.path(), indexed, &[]).unwrap());
        indexing.push(began.elapsed().as_nanos() as u64 / SEGMENT);
        let began = Instant::now();
        dedup.seal(0, base_offset, index).unwrap();
        sealing.push(began.elapsed().as_nanos() as u64 / SEGMENT);
    }
    // Only the rounds with all ten million ids.
    let [taking, indexing, sealing] = [taking, indexing, sealing].map(|rounds| {
        let mut last = rounds[rounds.len() - rounds.len() / 10..].to_vec();
        last.sort_unstable();
        last[last.len() / 2]
    });
    let strangers = 1_000_000;
    let candidates = |id| dedup.filter.candidates(dedup.hasher.hash(number(id))).count();
    let wrong: usize = (0..strangers).map(|_| candidates(MessageId::new())).sum();
    let (ids, mib, wrong) = (dedup.len(), dedup.memory_bytes() >> 20, wrong as f64 / f64::from(strangers) * 100.0);
    println!("{ids} ids in {mib} MiB; {wrong} % false positives, each a lookup in an index file");
    println!("one id: {taking} ns to look up and insert, {indexing} ns for the index file, {sealing} ns to seal");
    assert!(taking <= 400);
    assert!(wrong < 1.0);
}
