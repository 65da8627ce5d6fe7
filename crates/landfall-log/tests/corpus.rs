//! Replays the fuzzers' seed corpus, with 1,500 mutations of each file. No input may panic, and no length field in a
//! file may make the log allocate much more memory than the size of the file.
//!
//! All randomness comes from one printed seed: `LANDFALL_SEED=<number> cargo test -p landfall-log --test corpus`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "simulation/random.rs"]
#[allow(dead_code, reason = "the simulation uses more of it")]
mod random;

use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use landfall_core::{Broker, GroupName, Key, Message, ProducerName, Publisher, StartAt, TopicName};
use landfall_log::{Gaps, Log, Options, TopicSettings, fuzzing};
use random::{Random, seed};

const MUTATIONS: usize = 1500;

/// Memory that the process may reserve beyond what it has when a test begins. Code that trusts a length field without
/// checking it against the size of the file would allocate gigabytes.
const MEMORY_BYTES: u64 = 768 * 1024 * 1024;

fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target)
}

/// The files of one target, by name.
fn files(target: &str) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(corpus(target))
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
        .collect();
    files.sort();
    files
}

/// The peak of the virtual memory of this process, touched or not; `None` where the system does not report it.
fn peak_memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmPeak:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

fn replay(target: &str, read: fn(&[u8])) {
    let files = files(target);
    assert!(files.len() >= 3, "only {} files for {target}", files.len());
    let before = peak_memory();
    let mut random = Random::for_part(seed(), target.bytes().map(u64::from).sum());
    for (name, bytes) in &files {
        for number in 0..=MUTATIONS {
            let bytes = if number == 0 { bytes.clone() } else { mutated(&mut random, bytes, &files) };
            if catch_unwind(|| read(&bytes)).is_err() {
                let path = std::env::temp_dir().join(format!("landfall-{target}-{number}"));
                let _ = fs::write(&path, &bytes);
                let path = path.display();
                panic!("LANDFALL_SEED={}: {target}, mutation {number} of {name}, saved in {path}", seed());
            }
        }
    }
    if let (Some(before), Some(after)) = (before, peak_memory()) {
        let more = after - before;
        assert!(more < MEMORY_BYTES, "LANDFALL_SEED={}: {target} reserved {more} bytes", seed());
    }
}

/// Returns `bytes` with one to three mutations: flipped bits, oversized numbers, removed, zeroed or foreign parts.
fn mutated(random: &mut Random, bytes: &[u8], others: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..1 + random.below(3) {
        let at = random.below(bytes.len().max(1));
        let length = random.below(64).min(bytes.len() - at.min(bytes.len()));
        match random.below(8) {
            0..2 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << random.below(8)),
            2..4 => {
                let number = [0, 1, u64::from(u32::MAX), u64::MAX, i64::MAX as u64, random.next()][random.below(6)];
                let wide = [1, 2, 4, 8][random.below(4)];
                let field = bytes.iter_mut().skip(at).take(wide);
                field.zip(number.to_le_bytes()).for_each(|(byte, new)| *byte = new);
            }
            4 => bytes.truncate(at),
            5 => drop(bytes.drain(at..at + length)),
            6 => bytes.iter_mut().skip(at).take(length).for_each(|byte| *byte = 0),
            _ => {
                let (_, other) = &others[random.below(others.len())];
                let from = random.below(other.len().max(1));
                let part: Vec<u8> = other.iter().skip(from).take(1 + length * 8).copied().collect();
                bytes.splice(at..at + length, part);
            }
        }
    }
    bytes
}

#[test]
fn reading_arbitrary_bytes_as_a_segment_does_not_panic() {
    replay("segment", fuzzing::segment);
}

#[test]
fn reading_arbitrary_bytes_as_an_index_does_not_panic() {
    replay("index", fuzzing::index);
}

#[test]
fn reading_arbitrary_bytes_as_a_tail_does_not_panic() {
    replay("tail", fuzzing::tail);
}

#[test]
fn reading_arbitrary_bytes_as_group_progress_does_not_panic() {
    replay("group", fuzzing::group);
}

#[test]
fn reading_arbitrary_bytes_as_a_topic_does_not_panic() {
    replay("topic", fuzzing::topic);
}

#[test]
fn reading_arbitrary_bytes_as_producers_does_not_panic() {
    replay("producers", fuzzing::producers);
}

/// Regenerates the corpus from a real log. Run it after a change of the format.
#[tokio::test]
#[ignore = "writes the files that the other tests read"]
async fn regenerate_corpus() {
    let folder = tempfile::tempdir().unwrap();
    write_log(folder.path()).await;
    let topic = |path: &str| folder.path().join("topics/orders").join(path);
    let copy = |from: PathBuf, target: &str, name: &str| {
        fs::create_dir_all(corpus(target)).unwrap();
        fs::copy(&from, corpus(target).join(name)).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
    };
    for (ending, target) in [(".segment", "segment"), (".index", "index")] {
        for partition in ["0", "1"] {
            let mut names: Vec<_> =
                fs::read_dir(topic(partition)).unwrap().map(|entry| entry.unwrap().path()).collect();
            names.retain(|path| path.to_str().is_some_and(|path| path.ends_with(ending)));
            names.sort();
            let step = names.len() / 4;
            for (number, path) in names.into_iter().step_by(step.max(1)).enumerate() {
                copy(path, target, &format!("partition-{partition}-file-{number}"));
            }
        }
    }
    for topic in ["orders", "payments", "empty"] {
        copy(folder.path().join(format!("topics/{topic}/topic.json")), "topic", topic);
        if topic != "empty" {
            copy(folder.path().join(format!("groups/stock/{topic}.json")), "group", &format!("stock-{topic}"));
        }
    }
    copy(folder.path().join("groups/mail/orders.json"), "group", "mail-orders");
    copy(folder.path().join("producers.json"), "producers", "three-producers");
    copy(folder.path().join("topics/trimmed/0/start.json"), "topic", "start");
    fs::write(corpus("producers").join("no-producers"), r#"{"next_id":0,"producers":{},"checksum":0}"#).unwrap();
    fs::write(corpus("producers").join("none"), "").unwrap();
    damage_the_corpus();
    write_tails();
}

/// Writes tail files for segments of the corpus: with all of their batches, with the last one, and with none.
fn write_tails() {
    const SEGMENT_HEADER: usize = 64;
    fs::create_dir_all(corpus("tail")).unwrap();
    for number in [0, 2, 4] {
        let segment = fs::read(corpus("segment").join(format!("partition-0-file-{number}"))).unwrap();
        let mut last = SEGMENT_HEADER;
        let mut next = last;
        while let Some(length) = segment.get(next + 8..next + 12) {
            last = next;
            next += 73 + u32::from_le_bytes(length.try_into().unwrap()) as usize;
        }
        for (name, position) in [("all", SEGMENT_HEADER), ("last", last), ("nothing", segment.len())] {
            let belongs = [&segment[8..12], &[0; 4], &segment[16..24], &(position as u64).to_le_bytes()].concat();
            let rest = [&belongs, &segment[position..]].concat();
            let tail = [b"LFT\x01", &crc32c::crc32c(&rest).to_le_bytes()[..], &rest].concat();
            fs::write(corpus("tail").join(format!("{name}-of-file-{number}")), tail).unwrap();
        }
    }
}

/// Adds a few damaged files, so that fuzzing reaches the code for damage at once.
fn damage_the_corpus() {
    let mut segment = fs::read(corpus("segment").join("partition-0-file-0")).unwrap();
    let half = segment.len() / 2;
    fs::write(corpus("segment").join("cut"), &segment[..half]).unwrap();
    segment[half..half + 40].fill(0);
    fs::write(corpus("segment").join("hole"), &segment).unwrap();
    segment.truncate(half + 40);
    segment.resize(half + 600, 0);
    fs::write(corpus("segment").join("unfinished"), &segment).unwrap();
    let mut index = fs::read(corpus("index").join("partition-0-file-0")).unwrap();
    index[60] ^= 1;
    fs::write(corpus("index").join("another-count"), &index).unwrap();
}

async fn write_log(folder: &Path) {
    let options = Options { partitions: 2, segment_bytes: 1500, gaps: Gaps::Refuse, ..Options::default() };
    let log = Log::open(folder, options).unwrap();
    let (orders, payments) = (TopicName::new("orders").unwrap(), TopicName::new("payments").unwrap());
    let keep = TopicSettings { retention_bytes: Some(1 << 20), compact: true, ..TopicSettings::default() };
    log.create_topic(&payments, Some(1), keep).await.unwrap();
    log.create_topic(&TopicName::new("empty").unwrap(), Some(3), TopicSettings::default()).await.unwrap();
    log.create_topic(&orders, None, TopicSettings::default()).await.unwrap();
    write_messages(&log, &orders, &payments).await;
    for name in ["relay", "import", "shop"] {
        let producer = log.producer(&ProducerName::new(name).unwrap()).await.unwrap();
        for n in 0..3 {
            let batch = [Message::new(orders.clone(), "one"), Message::new(orders.clone(), "two")];
            let outcomes = producer.publish(&orders, 0, n * 2, &batch).await;
            assert!(outcomes.iter().all(landfall_core::Outcome::is_accepted));
        }
    }
    write_messages(&log, &orders, &payments).await;
    for (topic, group, offset) in [(&orders, "stock", 7), (&payments, "stock", 11), (&orders, "mail", 3)] {
        log.seek(topic, &GroupName::new(group).unwrap(), StartAt::Offset(offset)).await.unwrap();
    }
    let trimmed = TopicName::new("trimmed").unwrap();
    let keep = TopicSettings { retention_bytes: Some(1), ..TopicSettings::default() };
    log.create_topic(&trimmed, Some(1), keep).await.unwrap();
    let producer = log.producer(&ProducerName::new("relay").unwrap()).await.unwrap();
    for n in 0..5 {
        let outcomes = producer.publish(&trimmed, 0, n, &[Message::new(trimmed.clone(), vec![1; 700])]).await;
        assert!(outcomes.iter().all(landfall_core::Outcome::is_accepted));
    }
    assert!(log.maintain().await.unwrap().removed_segments > 0);
    assert_eq!(log.topics().await.unwrap().len(), 4);
    log.close().await.unwrap();
}

async fn write_messages(log: &Log, orders: &TopicName, payments: &TopicName) {
    for n in 0..20_usize {
        let key = Key::new(format!("k{}", n % 7)).unwrap();
        let payload = if n % 5 == 0 { vec![0; 700] } else { vec![n as u8; n * 11 % 90] };
        let batch = [Message::new(orders.clone(), payload).with_key(key), Message::new(payments.clone(), "paid")];
        assert!(log.publish(&batch).await.iter().all(landfall_core::Outcome::is_accepted));
    }
}
