use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use landfall_core::ErrorKind;
use proptest::prelude::*;

use super::*;
use crate::disk::Disk;
use crate::storage::index::memory_disk::MemoryDisk;
use crate::storage::index::{self, Builder, Described};

fn id(number: u128) -> MessageId {
    MessageId::from_bytes(number.to_be_bytes())
}

/// A folder for the index files of each partition.
fn folder(partition: u32) -> PathBuf {
    PathBuf::from(format!("{partition}"))
}

/// Writes the index of a segment with these ids at the offsets from `base_offset` on.
fn index_of(disk: &Arc<dyn Disk>, partition: u32, base_offset: u64, ids: &[MessageId]) -> Arc<IndexFile> {
    let mut builder = Builder::new(base_offset);
    (base_offset..).zip(ids).for_each(|(offset, id)| builder.add_id(*id, offset));
    let end_offset = base_offset + ids.len() as u64;
    let segment = Described { salt: 1, partition, end_offset, segment_bytes: 64 };
    Arc::new(builder.finish(disk, &folder(partition), segment, &[]).unwrap())
}

/// What happens to the ids of a topic.
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

/// A topic with its ids kept in the simplest way.
struct Topic {
    disk: Arc<dyn Disk>,
    seen: Seen,
    expected: BTreeMap<u128, Position>,
    /// By partition: finished segments, then the ids of the unfinished one with its first offset.
    finished: [Vec<(u64, Arc<IndexFile>)>; 3],
    unfinished: [(u64, Vec<MessageId>); 3],
}

impl Topic {
    fn new() -> Self {
        let (disk, _) = MemoryDisk::new();
        let (finished, unfinished) = Default::default();
        Self { disk, seen: Seen::new(), expected: BTreeMap::new(), finished, unfinished }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Publish { partition, number } => {
                let (base_offset, ids) = &mut self.unfinished[partition as usize];
                let position = Position { partition, offset: *base_offset + ids.len() as u64 };
                let found = self.seen.find_or_insert(id(number), position).unwrap();
                assert_eq!(found, self.expected.get(&number).copied());
                if found.is_some() {
                    return;
                }
                ids.push(id(number));
                self.expected.insert(number, position);
            }
            Step::Refuse { partition } => {
                if let Some(refused) = self.unfinished[partition as usize].1.pop() {
                    self.seen.remove(refused);
                    self.expected.remove(&u128::from_be_bytes(*refused.as_bytes()));
                }
            }
            Step::Finish { partition } => {
                let (base_offset, ids) = &mut self.unfinished[partition as usize];
                let index = index_of(&self.disk, partition, *base_offset, ids);
                self.seen.seal(partition, *base_offset, Arc::clone(&index)).unwrap();
                // An empty segment takes no offset, so the next one would have the same name.
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
                    self.seen.forget(partition, base_offset);
                    let deleted = base_offset..index.end_offset();
                    self.expected.retain(|_, at| at.partition != partition || !deleted.contains(&at.offset));
                }
            }
            Step::Reopen => self.reopen(),
        }
    }

    fn reopen(&mut self) {
        self.seen = Seen::new();
        for partition in 0..3_u32 {
            for (base_offset, index) in &self.finished[partition as usize] {
                self.seen.add_sealed(partition, *base_offset, Arc::clone(index)).unwrap();
            }
            let (base_offset, ids) = &self.unfinished[partition as usize];
            for (offset, id) in (*base_offset..).zip(ids) {
                self.seen.insert(*id, Position { partition, offset });
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn an_id_is_found_as_long_as_its_message_is_there(steps in proptest::collection::vec(any_step(), 1..150)) {
        let mut topic = Topic::new();
        for step in steps {
            topic.take(step);
            prop_assert_eq!(topic.seen.len(), topic.expected.len());
        }
        let others = (0..40).chain([u128::MAX]);
        let numbers: Vec<_> = topic.expected.keys().copied().chain(others).collect();
        for number in numbers {
            prop_assert_eq!(topic.seen.find(id(number)).unwrap(), topic.expected.get(&number).copied());
        }
    }
}

#[test]
fn finished_segments_leave_the_map_and_deleted_ones_leave_nothing() {
    let (mut topic, mut number) = (Topic::new(), 0);
    let empty = topic.seen.memory_bytes();
    for round in 0..70 {
        for _ in 0..100 {
            topic.take(Step::Publish { partition: 1, number });
            number += 1;
        }
        topic.take(Step::Finish { partition: 1 });
        assert_eq!(topic.seen.recent.len(), 0);
        assert_eq!(topic.seen.len(), (round + 1) * 100);
    }
    for left in (0..70).rev() {
        topic.take(Step::Delete { partition: 1 });
        assert_eq!(topic.seen.len(), left * 100);
    }
    assert_eq!(topic.seen.index_bytes, 0);
    assert!(topic.seen.memory_bytes() < empty + 16 * 1024);
}

#[test]
fn a_segment_that_was_rewritten_takes_the_place_of_what_it_was() {
    let (disk, _) = MemoryDisk::new();
    let disk: Arc<dyn Disk> = disk;
    let mut seen = Seen::new();
    seen.add_sealed(0, 0, index_of(&disk, 0, 0, &[id(1), id(2)])).unwrap();
    seen.add_sealed(0, 0, index_of(&disk, 0, 0, &[id(1), id(3)])).unwrap();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen.find(id(3)).unwrap(), Some(Position { partition: 0, offset: 1 }));
    assert_eq!(seen.find(id(2)).unwrap(), None);
    seen.forget(0, 0);
    assert_eq!((seen.len(), seen.find(id(1)).unwrap()), (0, None));
}

#[test]
fn a_damaged_index_is_an_error_and_changes_nothing() {
    let (memory, _) = MemoryDisk::new();
    let disk: Arc<dyn Disk> = memory.clone();
    let mut seen = Seen::new();
    let position = Position { partition: 0, offset: 0 };
    seen.insert(id(1), position);
    let index = index_of(&disk, 0, 0, &[id(1)]);
    let path = index::path(&folder(0), 0);
    let good = memory.content(&path);
    memory.put(&path, vec![0; good.len()]);
    assert_eq!(seen.seal(0, 0, Arc::clone(&index)).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!((seen.len(), seen.find(id(1)).unwrap()), (1, Some(position)));
    memory.put(&path, good.clone());
    seen.seal(0, 0, index).unwrap();
    assert_eq!((seen.len(), seen.find(id(1)).unwrap()), (1, Some(position)));
    memory.put(&path, vec![0; good.len()]);
    assert_eq!(seen.find(id(1)).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(seen.find(id(2)).unwrap(), None);
}

/// `cargo test -p landfall-log --release --lib -- --ignored --nocapture ten_million`
///
/// Rounds are short and the median counts: what is asked is what it costs, and not what else the machine does.
#[test]
#[ignore = "a measurement, for a release build"]
fn ten_million_live_ids_are_looked_up_within_the_budget() {
    const SEGMENT: u64 = 65_536;
    const SEGMENTS: u64 = 153;
    const ROUND: usize = 512;
    let directory = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(crate::disk::SystemDisk);
    let (mut seen, mut taking, mut indexing, mut sealing) = (Seen::new(), Vec::new(), Vec::new(), Vec::new());
    for segment in 0..SEGMENTS + 20 {
        let base_offset = segment * SEGMENT;
        let ids: Vec<_> = (0..SEGMENT).map(|_| MessageId::new()).collect();
        for (round, ids) in ids.chunks(ROUND).enumerate() {
            let began = Instant::now();
            for (offset, id) in (base_offset + (round * ROUND) as u64..).zip(ids) {
                assert_eq!(seen.find_or_insert(*id, Position { partition: 0, offset }).unwrap(), None);
            }
            taking.push(began.elapsed().as_nanos() as u64 / ROUND as u64);
        }
        let began = Instant::now();
        let mut builder = Builder::new(base_offset);
        (base_offset..).zip(&ids).for_each(|(offset, id)| builder.add_id(*id, offset));
        let described = Described { salt: 1, partition: 0, end_offset: base_offset + SEGMENT, segment_bytes: 64 };
        let index = Arc::new(builder.finish(&disk, directory.path(), described, &[]).unwrap());
        indexing.push(began.elapsed().as_nanos() as u64 / SEGMENT);
        let began = Instant::now();
        seen.seal(0, base_offset, index).unwrap();
        sealing.push(began.elapsed().as_nanos() as u64 / SEGMENT);
    }
    // Only with all ten million.
    let [taking, indexing, sealing] = [taking, indexing, sealing].map(|rounds| {
        let mut last = rounds[rounds.len() - rounds.len() / 10..].to_vec();
        last.sort_unstable();
        last[last.len() / 2]
    });
    let strangers = 1_000_000;
    let candidates = |id| seen.filter.candidates(seen.mix.hash(number(id))).count();
    let wrong: usize = (0..strangers).map(|_| candidates(MessageId::new())).sum();
    let (ids, mib, wrong) = (seen.len(), seen.memory_bytes() >> 20, wrong as f64 / f64::from(strangers) * 100.0);
    println!("{ids} ids in {mib} MiB; {wrong} % of all strangers are looked for in an index file");
    println!("one id: {taking} ns to look up and insert, {indexing} ns for the index file, {sealing} ns to seal");
    assert!(taking <= 400);
    assert!(wrong < 1.0);
}
