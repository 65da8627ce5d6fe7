//! What verify finds in a damaged log, and what a repair keeps.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use landfall_core::adapter::Subscriber;
use landfall_core::{Broker, ErrorKind, Message, StartAt};
use landfall_log::{Log, Options, Problem, Repaired, Report};
use proptest::prelude::*;
use proptest::sample::Index;

use crate::failing_disk::FailingDisk;
use crate::support::*;

/// A closed log of several segments, with one partition; each message is in its own batch.
struct Stored {
    folder: tempfile::TempDir,
    messages: Vec<Message>,
    /// Every segment with its original content.
    segments: Vec<(PathBuf, Vec<u8>)>,
}

const OPTIONS: fn() -> Options = || Options { segment_bytes: 1024, ..one_partition() };

async fn stored() -> Stored {
    let folder = quick_folder();
    let log = Log::open(folder.path(), OPTIONS()).unwrap();
    let messages = publish_each(&log, 0..24).await;
    log.close().await.unwrap();
    let segments: Vec<_> =
        segments(folder.path(), 0).into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    assert!(segments.len() >= 4);
    Stored { folder, messages, segments }
}

impl Stored {
    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Restores the original files.
    fn restore(&self) {
        let _ = fs::remove_dir_all(self.path().join("damaged"));
        for path in segments(self.path(), 0) {
            fs::remove_file(path).unwrap();
        }
        for (path, bytes) in &self.segments {
            fs::write(path, bytes).unwrap();
        }
    }

    /// The offsets of the segment at `index`.
    fn offsets(&self, index: usize) -> Range<u64> {
        let base = |(path, _): &(PathBuf, Vec<u8>)| path.file_stem().unwrap().to_str().unwrap().parse().unwrap();
        base(&self.segments[index])..self.segments.get(index + 1).map_or(self.messages.len() as u64, base)
    }

    /// The byte range of the batch at `number` of the segment at `index`, and its offset.
    fn batch(&self, index: usize, number: usize) -> (Range<usize>, u64) {
        let bounds = batch_bounds(&self.segments[index].1);
        (bounds[number]..bounds[number + 1], self.offsets(index).start + number as u64)
    }

    /// Changes the segment at `index`.
    fn damage(&self, index: usize, change: impl FnOnce(&mut Vec<u8>)) {
        let (path, _) = &self.segments[index];
        let mut bytes = fs::read(path).unwrap();
        change(&mut bytes);
        fs::write(path, bytes).unwrap();
    }

    async fn verify(&self) -> Report {
        let mut reports = Log::open_read_only(self.path()).unwrap().verify(None, |_| {}).await.unwrap();
        assert_eq!(reports.len(), 1);
        reports.remove(0)
    }

    /// Repairs, and asserts that exactly `lost` was given up and that damaged files were set aside.
    fn repair(&self, lost: Range<u64>, what: &str) -> Vec<Repaired> {
        let before: BTreeMap<_, _> =
            segments(self.path(), 0).into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect();
        let repaired = Log::repair(self.path(), None).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(!repaired.is_empty(), "{what}");
        let given_up: Vec<u64> =
            repaired.iter().flat_map(|one| &one.lost).flat_map(|lost| lost.first_offset..=lost.last_offset).collect();
        assert_eq!(given_up, lost.collect::<Vec<_>>(), "{what}");
        for Repaired { file, kept, .. } in &repaired {
            assert_eq!(kept.as_ref().map(|kept| fs::read(kept).unwrap()).as_ref(), before.get(file), "{what}");
        }
        repaired
    }

    /// Opens the log and asserts that it has all messages before `end` except `lost`, each at its offset. Then checks
    /// that the log continues after them, across more segments and a restart.
    async fn assert_recovers(&self, lost: Range<u64>, end: u64, what: &str) {
        let report = self.verify().await;
        assert_eq!(report.problems, [], "{what}");
        assert_eq!(report.lost, lost.end - lost.start, "{what}");
        assert_eq!(Log::repair(self.path(), None).unwrap(), [], "{what}: a second repair has nothing to do");

        let offsets = (0..end).filter(|offset| !lost.contains(offset));
        let mut expected: Vec<_> =
            offsets.filter_map(|offset| Some((offset, self.messages.get(offset as usize)?.clone()))).collect();
        let log = Log::open(self.path(), OPTIONS()).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(positions(&log).await, expected, "{what}");
        for (message, offset) in publish_each(&log, 100..112).await.into_iter().zip(end..) {
            expected.push((offset, message));
        }
        log.close().await.unwrap();
        let log = Log::open(self.path(), OPTIONS()).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(positions(&log).await, expected, "{what}, after new messages");
        log.close().await.unwrap();
        let report = self.verify().await;
        assert_eq!((report.problems, report.messages), (vec![], expected.len() as u64), "{what}, after new messages");
    }

    /// Lets the group finish all messages.
    async fn finish_all(&self) {
        let log = Log::open(self.path(), OPTIONS()).unwrap();
        let mut subscriber: Box<dyn Subscriber> = log.subscribe(&topic(), &group()).await.unwrap();
        for _ in &self.messages {
            next(&mut subscriber).await.ack().await.unwrap();
        }
        subscriber.close().await.unwrap();
        log.close().await.unwrap();
    }
}

async fn positions(log: &Log) -> Vec<(u64, Message)> {
    let mut reader = log.read(&topic(), StartAt::Beginning).await.unwrap();
    let (stored, outcome) = drain(&mut *reader).await;
    outcome.unwrap();
    stored.into_iter().map(|stored| (stored.position.offset, stored.message.unwrap())).collect()
}

fn only(report: &Report) -> &Problem {
    assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
    &report.problems[0]
}

#[tokio::test]
async fn undamaged_log_has_no_problems_and_needs_no_repair() {
    let stored = stored().await;
    let read = Arc::new(AtomicU64::new(0));
    let log = Log::open_read_only(stored.path()).unwrap();
    let counter = Arc::clone(&read);
    let progress = move |bytes| _ = counter.fetch_add(bytes, Ordering::Relaxed);
    let report = log.verify(Some(&topic()), progress).await.unwrap().remove(0);
    let bytes: usize = stored.segments.iter().map(|(_, bytes)| bytes.len()).sum();
    assert_eq!((report.segments, report.batches, report.messages), (stored.segments.len() as u64, 24, 24));
    assert_eq!((report.bytes, report.unfinished_bytes, report.lost, report.removed), (bytes as u64, 0, 0, 0));
    assert_eq!(read.load(Ordering::Relaxed), bytes as u64, "every byte was read");
    assert_eq!(log.bytes_to_verify(None).await.unwrap(), bytes as u64);
    stored.assert_recovers(0..0, 24, "undamaged").await;
    assert!(!stored.path().join("damaged").exists());
}

#[tokio::test]
async fn flipped_byte_is_located_and_costs_at_most_its_batch() {
    let stored = stored().await;
    for (index, (path, bytes)) in stored.segments.iter().enumerate() {
        let bounds = batch_bounds(bytes);
        for at in (index..bytes.len()).step_by(17) {
            let what = format!("byte {at} of segment {index} flipped");
            stored.restore();
            stored.damage(index, |bytes| bytes[at] ^= 0x10);
            let report = stored.verify().await;
            let problem = only(&report);
            assert_eq!((&problem.file, problem.is_repairable), (path, true), "{what}: {problem}");
            let Some(number) = bounds.iter().rposition(|bound| *bound <= at) else {
                assert_eq!((problem.position, problem.first_offset), (0, None), "{what}: {problem}");
                stored.repair(0..0, &what);
                stored.assert_recovers(0..0, 24, &what).await;
                continue;
            };
            let (range, offset) = stored.batch(index, number);
            assert_eq!(
                (problem.position, problem.first_offset),
                (range.start as u64, Some(offset)),
                "{what}: {problem}"
            );
            assert_eq!((report.messages, report.batches), (23, 23), "{what}");
            // Only the header of the very last batch says how many messages it has.
            if offset == 23 && problem.last_offset.is_none() {
                assert!(at < range.start + 72, "{what}");
                stored.repair(0..0, &what);
                stored.assert_recovers(0..0, 23, &what).await;
                continue;
            }
            assert_eq!(problem.last_offset, Some(offset), "{what}: {problem}");
            stored.repair(offset..offset + 1, &what);
            stored.assert_recovers(offset..offset + 1, 24, &what).await;
        }
    }
}

#[tokio::test]
async fn segment_without_header_and_first_batch_is_lost() {
    let stored = stored().await;
    for index in 0..stored.segments.len() {
        let what = format!("segment {index}");
        stored.restore();
        let (first, _) = stored.batch(index, 0);
        // Only the header is damaged: the batches identify the segment.
        stored.damage(index, |bytes| bytes[..HEADER].fill(0xff));
        assert!(only(&stored.verify().await).what.contains("can still be read"), "{what}");
        stored.repair(0..0, &what);
        stored.assert_recovers(0..0, 24, &what).await;

        stored.restore();
        stored.damage(index, |bytes| bytes[..first.end].fill(0xff));
        let (report, offsets) = (stored.verify().await, stored.offsets(index));
        let is_last = offsets.end == 24;
        let last_offset = (!is_last).then_some(offsets.end - 1);
        let problem = only(&report);
        assert_eq!(
            (problem.first_offset, problem.last_offset),
            (Some(offsets.start), last_offset),
            "{what}: {problem}"
        );
        // The content of the last segment is unknown, so it starts over.
        let (lost, end) = if is_last { (0..0, offsets.start) } else { (offsets, 24) };
        stored.repair(lost.clone(), &what);
        stored.assert_recovers(lost, end, &what).await;
    }
}

#[tokio::test]
async fn salt_in_a_damaged_header_is_enough_for_repair() {
    let stored = stored().await;
    let (first, offset) = stored.batch(1, 0);
    stored.damage(1, |bytes| {
        bytes[20] ^= 1;
        bytes[first.clone()].fill(0xff);
    });
    stored.repair(offset..offset + 1, "header and first batch");
    stored.assert_recovers(offset..offset + 1, 24, "header and first batch").await;
}

#[tokio::test]
async fn repair_loses_only_missing_segments() {
    let stored = stored().await;
    let last = stored.segments.len() - 1;
    for missing in [0..1, 1..2, 2..3, 0..2, 1..3, 0..last] {
        let what = format!("segments {missing:?} missing");
        stored.restore();
        for (path, _) in &stored.segments[missing.clone()] {
            fs::remove_file(path).unwrap();
        }
        let lost = stored.offsets(missing.start).start..stored.offsets(missing.end).start;
        let report = stored.verify().await;
        let named =
            |offset| report.problems.iter().any(|one| (one.first_offset..=one.last_offset).contains(&Some(offset)));
        assert!(lost.clone().all(named), "{what}: {:?}", report.problems);
        let repaired = Log::repair(stored.path(), None).unwrap();
        let given_up: BTreeSet<_> =
            repaired.iter().flat_map(|one| &one.lost).flat_map(|lost| lost.first_offset..=lost.last_offset).collect();
        assert!(given_up.into_iter().eq(lost.clone()), "{what}");
        stored.assert_recovers(lost, 24, &what).await;
    }
}

#[tokio::test]
async fn repair_keeps_batches_between_several_damages() {
    let stored = stored().await;
    let lost: Vec<u64> = [(1, 0), (1, 2), (2, 1)]
        .into_iter()
        .map(|(index, number)| {
            let (range, offset) = stored.batch(index, number);
            stored.damage(index, |bytes| bytes[range].fill(0xa5));
            offset
        })
        .collect();
    let report = stored.verify().await;
    let found: Vec<_> = report.problems.iter().map(|problem| problem.first_offset.unwrap()).collect();
    assert_eq!(found, lost);
    assert!(report.problems.iter().all(|problem| problem.first_offset == problem.last_offset));
    let repaired = Log::repair(stored.path(), None).unwrap();
    assert_eq!(repaired.len(), 2, "two files");

    let log = Log::open(stored.path(), OPTIONS()).unwrap();
    let left: Vec<_> = positions(&log).await;
    let expected = (0..24).filter(|offset| !lost.contains(offset));
    assert!(left.iter().map(|(offset, _)| *offset).eq(expected));
    assert!(left.iter().all(|(offset, message)| *message == stored.messages[*offset as usize]));
}

#[tokio::test]
async fn truncated_extended_or_shortened_segment_is_repaired() {
    let stored = stored().await;
    let (batch, offset) = stored.batch(1, 1);
    let end = stored.offsets(1).end;

    stored.damage(1, |bytes| bytes.truncate(batch.start + 30));
    assert_eq!(only(&stored.verify().await).position, batch.start as u64);
    stored.repair(offset..end, "cut");
    stored.assert_recovers(offset..end, 24, "cut").await;

    stored.restore();
    stored.damage(1, |bytes| bytes.truncate(batch.start));
    stored.repair(offset..end, "cut between batches");
    stored.assert_recovers(offset..end, 24, "cut between batches").await;

    stored.restore();
    stored.damage(1, |bytes| drop(bytes.drain(batch.clone())));
    stored.repair(offset..offset + 1, "without a batch");
    stored.assert_recovers(offset..offset + 1, 24, "without a batch").await;

    for (what, tail) in [("zeros", vec![0; 600]), ("garbage", vec![0xa5; 600])] {
        stored.restore();
        stored.damage(1, |bytes| bytes.extend(&tail));
        let report = stored.verify().await;
        assert_eq!((only(&report).first_offset, report.messages), (None, 24), "{what}: {:?}", report.problems);
        stored.repair(0..0, what);
        stored.assert_recovers(0..0, 24, what).await;
    }
}

#[tokio::test]
async fn damage_at_the_end_is_truncated_unless_a_group_is_beyond_it() {
    let stored = stored().await;
    let last = stored.segments.len() - 1;
    let (batch, _) = stored.batch(last, stored.offsets(last).count() - 1);
    let (before, offset) = (batch.start, 23);
    stored.damage(last, |bytes| bytes[before..].fill(0xa5));
    assert_eq!(only(&stored.verify().await).last_offset, None);
    stored.repair(0..0, "garbage at the end");
    stored.assert_recovers(0..0, offset, "garbage at the end").await;

    stored.restore();
    stored.finish_all().await;
    for (what, change) in [("garbage", 0xa5), ("zeros", 0)] {
        stored.restore();
        stored.damage(last, |bytes| bytes[before..].fill(change));
        let report = stored.verify().await;
        assert_eq!((only(&report).first_offset, only(&report).last_offset), (Some(offset), Some(offset)), "{what}");
        stored.repair(offset..offset + 1, what);
        stored.assert_recovers(offset..offset + 1, 24, what).await;
    }
    // First the whole last segment is missing, then the whole partition.
    stored.restore();
    fs::remove_file(&stored.segments[last].0).unwrap();
    stored.repair(stored.offsets(last), "the last segment is missing");
    stored.assert_recovers(stored.offsets(last), 24, "the last segment is missing").await;
    stored.restore();
    fs::remove_dir_all(stored.segments[0].0.parent().unwrap()).unwrap();
    let repaired = Log::repair(stored.path(), None).unwrap();
    assert_eq!(repaired.iter().flat_map(|one| &one.lost).map(|lost| lost.count()).sum::<u64>(), 24);
    stored.assert_recovers(0..24, 24, "the partition is missing").await;
}

#[tokio::test]
async fn unfinished_tail_is_reported_and_not_a_problem() {
    let stored = stored().await;
    let last = stored.segments.len() - 1;
    let (batch, _) = stored.batch(last, stored.offsets(last).count() - 1);
    stored.damage(last, |bytes| {
        bytes[batch.start + 80..].fill(0);
        bytes.extend([0; 300]);
    });
    let report = stored.verify().await;
    assert_eq!((report.problems.len(), report.messages), (0, 23), "{:?}", report.problems);
    assert!((1..=80).contains(&report.unfinished_bytes), "{}", report.unfinished_bytes);
    assert_eq!(Log::repair(stored.path(), None).unwrap(), []);
    stored.assert_recovers(0..0, 23, "torn").await;
}

#[tokio::test]
async fn zeroed_batch_before_a_valid_one_is_damage() {
    let stored = stored().await;
    let last = stored.segments.len() - 1;
    let (batch, offset) = stored.batch(last, 0);
    stored.damage(last, |bytes| bytes[batch].fill(0));
    assert!(only(&stored.verify().await).what.contains("proves that it was synced"));
    stored.repair(offset..offset + 1, "zeros");
    stored.assert_recovers(offset..offset + 1, 24, "zeros").await;
}

#[tokio::test]
async fn copied_batches_inside_a_damaged_one_are_not_used() {
    let folder = quick_folder();
    let log = Log::open(folder.path(), one_partition()).unwrap();
    let before = publish_each(&log, 0..3).await;
    let path = segments(folder.path(), 0).remove(0);
    let copy = Message::new(topic(), fs::read(&path).unwrap()[..600].to_vec());
    publish(&log, std::slice::from_ref(&copy)).await;
    let after = publish_each(&log, 4..6).await;
    log.close().await.unwrap();

    let mut bytes = fs::read(&path).unwrap();
    let bounds = batch_bounds(&bytes);
    bytes[bounds[3] + 9] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let repaired = Log::repair(folder.path(), Some(&topic())).unwrap();
    assert_eq!(repaired[0].lost.iter().map(|lost| (lost.first_offset, lost.last_offset)).collect::<Vec<_>>(), [(3, 3)]);
    let log = Log::open(folder.path(), one_partition()).unwrap();
    assert_eq!(read_all(&log).await, [before, after].concat());
}

#[tokio::test]
async fn missing_successor_of_a_repaired_segment_is_damage() {
    let stored = stored().await;
    let last = stored.segments.len() - 1;
    let (batch, offset) = stored.batch(last - 1, 0);
    stored.damage(last - 1, |bytes| bytes[batch.start + 90] ^= 1);
    stored.repair(offset..offset + 1, "the second to last segment");
    fs::remove_file(&stored.segments[last].0).unwrap();
    assert_refused_as_corrupt(stored.path(), &stored.segments[last - 1].0, "the last segment is missing");
    let end = stored.offsets(last).start;
    assert_eq!(only(&stored.verify().await).first_offset, Some(end));
    assert_eq!(Log::repair(stored.path(), None).unwrap()[0].lost, []);
    stored.assert_recovers(offset..offset + 1, end, "the last segment is missing").await;
}

/// Damage to a segment chosen by index.
#[derive(Debug, Clone)]
enum Damage {
    Overwrite { segment: Index, from: Index, length: usize, with: u8 },
    Truncate { segment: Index, to: Index },
    Remove { segment: Index },
}

fn damage() -> impl Strategy<Value = Damage> {
    let overwrite = (any::<Index>(), any::<Index>(), 1..400_usize, prop_oneof![Just(0_u8), any::<u8>()]);
    prop_oneof![
        8 => overwrite.prop_map(|(segment, from, length, with)| Damage::Overwrite { segment, from, length, with }),
        1 => (any::<Index>(), any::<Index>()).prop_map(|(segment, to)| Damage::Truncate { segment, to }),
        1 => any::<Index>().prop_map(|segment| Damage::Remove { segment }),
    ]
}

impl Stored {
    /// Applies the damage, and removes the offsets of all messages from `intact` that it may affect.
    fn apply(&self, damage: &Damage, intact: &mut BTreeSet<u64>) {
        let (Damage::Overwrite { segment, .. } | Damage::Truncate { segment, .. } | Damage::Remove { segment }) =
            damage;
        let index = segment.index(self.segments.len());
        let (path, original) = &self.segments[index];
        let Ok(mut bytes) = fs::read(path) else { return };
        let mut damaged = 0..original.len();
        match damage {
            Damage::Remove { .. } => {
                fs::remove_file(path).unwrap();
                return intact.retain(|offset| !self.offsets(index).contains(offset));
            }
            Damage::Truncate { to, .. } => {
                damaged.start = to.index(original.len());
                bytes.truncate(damaged.start);
            }
            Damage::Overwrite { from, length, with, .. } => {
                damaged.start = from.index(original.len());
                damaged.end = (damaged.start + length).min(original.len());
                let end = damaged.end.min(bytes.len());
                bytes[damaged.start.min(end)..end].fill(*with);
            }
        }
        fs::write(path, bytes).unwrap();
        let bounds = batch_bounds(original);
        for (range, offset) in bounds.windows(2).map(|pair| pair[0]..pair[1]).zip(self.offsets(index)) {
            // Without its header a segment needs its first batch, so damage to the header may affect all batches.
            let is_header = damaged.start < HEADER;
            if is_header || (range.start < damaged.end && damaged.start < range.end) {
                intact.remove(&offset);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn repair_keeps_all_intact_messages_and_invents_none(
        damages in proptest::collection::vec(damage(), 1..6),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            static STORED: OnceLock<Stored> = OnceLock::new();
            if STORED.get().is_none() {
                let _ = STORED.set(stored().await);
            }
            let stored = STORED.get().unwrap();
            stored.restore();
            let mut intact: BTreeSet<u64> = (0..24).collect();
            damages.iter().for_each(|damage| stored.apply(damage, &mut intact));

            Log::repair(stored.path(), None).unwrap();
            assert_eq!(Log::repair(stored.path(), None).unwrap(), [], "a second repair has nothing to do");
            let log = Log::open(stored.path(), OPTIONS()).unwrap();
            let left = positions(&log).await;
            for (offset, message) in &left {
                assert_eq!(message, &stored.messages[*offset as usize]);
            }
            let left: BTreeSet<_> = left.into_iter().map(|(offset, _)| offset).collect();
            assert!(left.is_superset(&intact), "only {left:?} is left of {intact:?}");
            publish_each(&log, 100..110).await;
            log.close().await.unwrap();
            Log::open(stored.path(), OPTIONS()).unwrap().close().await.unwrap();
        });
    }
}

/// Wherever a repair is interrupted, the next one has the same result as a single repair.
#[tokio::test]
async fn interrupted_repair_is_completed_by_the_next() {
    let stored = stored().await;
    let damage = || {
        stored.restore();
        stored.damage(0, |bytes| bytes[HEADER + 80] ^= 1);
        fs::remove_file(&stored.segments[1].0).unwrap();
        stored.damage(2, |bytes| bytes[..300].fill(7));
        fs::write(stored.path().join("groups/stock/orders.json"), "{").unwrap();
    };
    fs::create_dir_all(stored.path().join("groups/stock")).unwrap();
    damage();
    Log::repair(stored.path(), None).unwrap();
    let expected = (state(&stored).await, set_aside(&stored));

    let mut steps = 0;
    loop {
        damage();
        let disk = Arc::new(FailingDisk::new(io::ErrorKind::Other));
        disk.fail_after(steps);
        let outcome = Log::repair_on(disk.clone(), stored.path(), None);
        assert_eq!(outcome.is_err(), disk.has_failed(), "after {steps} steps");
        Log::repair(stored.path(), None).unwrap();
        assert_eq!((state(&stored).await, set_aside(&stored)), expected, "after {steps} steps");
        if !disk.has_failed() {
            break;
        }
        steps += 1;
    }
    assert!(steps > 30, "the repair has only {steps} steps");
}

async fn state(stored: &Stored) -> (Report, Vec<(u64, Message)>) {
    let mut report = stored.verify().await;
    assert_eq!(report.problems, []);
    report.problems.clear();
    let log = Log::open(stored.path(), OPTIONS()).unwrap();
    let messages = positions(&log).await;
    log.close().await.unwrap();
    (report, messages)
}

/// All files below `damaged`.
fn set_aside(stored: &Stored) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut files, mut folders) = (BTreeMap::new(), vec![stored.path().join("damaged")]);
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            match path.is_dir() {
                true => folders.push(path),
                false => drop(files.insert(path.clone(), fs::read(&path).unwrap())),
            }
        }
    }
    files
}

#[tokio::test]
async fn files_set_aside_are_never_overwritten() {
    let stored = stored().await;
    for offset in 0..2 {
        // The first payload that is not damaged yet.
        let bytes = fs::read(&stored.segments[0].0).unwrap();
        let at = bytes.windows(7).position(|bytes| bytes == b"payload").unwrap();
        stored.damage(0, |bytes| bytes[at] ^= 1);
        let repaired = Log::repair(stored.path(), None).unwrap();
        assert_eq!(repaired[0].lost[0].first_offset, offset);
    }
    let names: Vec<_> = set_aside(&stored).into_keys().map(|path| path.file_name().unwrap().to_owned()).collect();
    assert_eq!(names, ["00000000000000000000.segment.1", "00000000000000000000.segment.2"]);
    stored.assert_recovers(0..2, 24, "repaired twice").await;
}

#[tokio::test]
async fn damaged_group_file_is_set_aside_and_the_group_restarts() {
    let stored = stored().await;
    stored.finish_all().await;
    let path = stored.path().join("groups/stock/orders.json");
    let damaged = fs::read_to_string(&path).unwrap().replace("24", "25");
    fs::write(&path, &damaged).unwrap();
    assert_eq!(only(&stored.verify().await).file, path);
    let repaired = Log::repair(stored.path(), None).unwrap();
    assert_eq!(fs::read_to_string(repaired[0].kept.as_ref().unwrap()).unwrap(), damaged);
    assert_eq!(repaired[0].partition, None);
    let log = Log::open(stored.path(), OPTIONS()).unwrap();
    let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
    assert_eq!(next(&mut subscriber).await.message.as_ref().unwrap(), &stored.messages[0]);
}

#[tokio::test]
async fn unrepairable_problems_are_reported_and_left_unchanged() {
    let stored = stored().await;
    let path = stored.path().join("topics/orders/topic.json");
    let text = fs::read(&path).unwrap();
    for damaged in [Some("{}"), None] {
        match damaged {
            Some(damaged) => fs::write(&path, damaged).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        let report = stored.verify().await;
        assert_eq!((&only(&report).file, only(&report).is_repairable, report.messages), (&path, false, 24));
        assert_eq!(Log::repair(stored.path(), None).unwrap(), []);
    }
    fs::write(&path, text).unwrap();

    // A segment of another log in the middle of this one.
    let other = quick_folder();
    let log = Log::open(other.path(), Options { segment_bytes: 1500, ..one_partition() }).unwrap();
    publish_each(&log, 0..24).await;
    log.close().await.unwrap();
    let foreign = segments(other.path(), 0).remove(1);
    let stray = stored.segments[0].0.with_file_name(foreign.file_name().unwrap());
    assert!(!stray.exists());
    fs::copy(&foreign, &stray).unwrap();
    let report = stored.verify().await;
    assert!(report.problems.iter().any(|problem| !problem.is_repairable), "{:?}", report.problems);
    assert_eq!(Log::repair(stored.path(), None).unwrap(), []);
    fs::remove_file(&stray).unwrap();
    stored.assert_recovers(0..0, 24, "without the stray segment").await;
}

#[tokio::test]
async fn verify_works_on_an_open_log_and_repair_does_not() {
    let folder = quick_folder();
    let options = Options { segment_bytes: 4096, preallocate_bytes: 700, ..Options::default() };
    let log = Log::open(folder.path(), options).unwrap();
    publish(&log, &[message("first", 0)]).await;
    let verifications = Arc::new(AtomicU64::new(0));
    let writer = tokio::spawn({
        let (log, verifications) = (log.clone(), verifications.clone());
        async move {
            let mut rounds = 0;
            while rounds < 1500 || verifications.load(Ordering::Relaxed) < 2 {
                rounds += 1;
                let batch: Vec<_> = ["a", "b", "c", "d", "e"].map(|key| message(key, rounds)).into();
                publish(&log, &batch).await;
            }
            rounds as u64
        }
    });
    let read_only = Log::open_read_only(folder.path()).unwrap();
    while !writer.is_finished() {
        let report = read_only.verify(Some(&topic()), |_| {}).await.unwrap().remove(0);
        assert_eq!(report.problems, []);
        verifications.fetch_add(1, Ordering::Relaxed);
    }
    let messages = 1 + 5 * writer.await.unwrap();
    let report = read_only.verify(None, |_| {}).await.unwrap().remove(0);
    assert_eq!((report.messages, report.unfinished_bytes, report.problems), (messages, 0, vec![]));
    assert_eq!(Log::repair(folder.path(), None).unwrap_err().kind(), ErrorKind::InUse);
    let nothing = "nothing".parse().unwrap();
    assert_eq!(read_only.verify(Some(&nothing), |_| {}).await.unwrap_err().kind(), ErrorKind::NotFound);
    log.close().await.unwrap();
    assert_eq!(Log::repair(folder.path(), Some(&nothing)).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(Log::repair(quick_folder().path(), None).unwrap_err().kind(), ErrorKind::NotFound);
}

/// Opens the log on a disk that fails once the tail file exists. Returns the path of the tail file.
fn interrupt_opening(stored: &Stored) -> PathBuf {
    let tail = stored.segments[0].0.with_file_name("tail");
    for steps in 0.. {
        let disk = Arc::new(FailingDisk::new(io::ErrorKind::Other));
        disk.fail_after(steps);
        let opened = Log::open_on(disk.clone(), stored.path(), OPTIONS());
        if tail.exists() {
            break;
        }
        assert!(opened.is_err(), "opening never wrote a tail file");
    }
    tail
}

#[tokio::test]
async fn tail_file_is_verified_and_restored() {
    for is_repaired in [false, true] {
        let stored = stored().await;
        let tail = interrupt_opening(&stored);
        let last = stored.segments.len() - 1;
        // Power failed while the last batches were rewritten: a part of them is there and looks damaged.
        let (range, _) = stored.batch(last, batch_bounds(&stored.segments[last].1).len() - 2);
        stored.damage(last, |bytes| bytes[range.start + 80..range.start + 90].fill(9));
        assert_eq!(stored.verify().await.messages, 24);
        if is_repaired {
            assert_eq!(Log::repair(stored.path(), None).unwrap(), []);
            assert!(!tail.exists());
        }
        stored.assert_recovers(0..0, 24, "the last batches are restored").await;
        assert!(!tail.exists());
    }
}

#[tokio::test]
async fn damaged_tail_file_is_refused_until_repaired() {
    let stored = stored().await;
    let tail = interrupt_opening(&stored);
    let mut bytes = fs::read(&tail).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&tail, &bytes).unwrap();
    assert_refused_as_corrupt(stored.path(), &tail, "its checksum is wrong");
    let report = stored.verify().await;
    assert_eq!((&only(&report).file, only(&report).is_repairable), (&tail, true));

    let repaired = Log::repair(stored.path(), None).unwrap();
    let [Repaired { file, kept: Some(kept), lost, .. }] = &repaired[..] else { panic!("{repaired:?}") };
    assert_eq!((file, fs::read(kept).unwrap(), lost.len()), (&tail, bytes, 0));
    stored.assert_recovers(0..0, 24, "the segment is untouched").await;
}
