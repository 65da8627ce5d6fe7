//! A real process that publishes and consumes, and is killed in the middle, again and again.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use landfall_core::{Broker, ErrorKind, MessageId, Position, StartAt};
use landfall_log::{Log, Options};
use support::*;

const KILLS: usize = 20;
const FOLDER: &str = "LANDFALL_LOG_CRASH_FOLDER";
const ACCEPTED: &str = "accepted";
const FINISHED: &str = "finished";

/// Small segments, so that kills also hit the moments in which one is begun.
fn options() -> Options {
    Options { segment_bytes: 16 * 1024, preallocate_bytes: 4096, partitions: 2, ..Options::default() }
}

/// One line at a time, at once: what the parent has read, the child was told.
fn say(word: &str, id: MessageId, position: Position) {
    let line = format!("{word} {id} {} {}\n", position.partition, position.offset);
    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "is the process that the other test starts and kills"]
async fn publishes_and_consumes_until_it_is_killed() {
    let folder = std::env::var_os(FOLDER).expect("the other test says where");
    let log = Log::open(folder, options()).unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for publisher in 0..3_i64 {
        let log = log.clone();
        tasks.spawn(async move {
            for n in 0.. {
                let batch: Vec<_> = (0..=n % 7).map(|m| message(&format!("{publisher}-{m}"), n)).collect();
                for (message, position) in batch.iter().zip(publish(&log, &batch).await) {
                    say(ACCEPTED, message.id, position);
                }
            }
        });
    }
    tasks.spawn(async move {
        let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
        while let Some(delivery) = subscriber.next().await.unwrap() {
            let (id, position) = (delivery.message.as_ref().unwrap().id, delivery.position);
            say(FINISHED, id, position);
            delivery.ack().await.unwrap();
        }
    });
    tasks.join_all().await;
}

/// What the child said before it was killed.
#[derive(Default)]
struct Said {
    accepted: HashMap<MessageId, Position>,
    finished: HashSet<MessageId>,
}

/// Starts the child, lets it publish at least `lines` messages and live for `linger` more, and kills it.
fn run_and_kill(folder: &Path, lines: usize, linger: Duration, said: &mut Said) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "publishes_and_consumes_until_it_is_killed"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut heard = 0;
    let mut hear = |line: String| {
        // A line may be cut by the kill; then nobody was told.
        if let [word, id, partition, offset] = line.split(' ').collect::<Vec<_>>()[..]
            && (word == ACCEPTED || word == FINISHED)
            && let (Ok(id), Ok(partition), Ok(offset)) = (id.parse(), partition.parse(), offset.parse())
        {
            if word == ACCEPTED {
                heard += 1;
                said.accepted.insert(id, Position { partition, offset });
            } else {
                said.finished.insert(id);
            }
        }
        heard
    };
    for line in output.by_ref() {
        if hear(line.unwrap()) >= lines {
            break;
        }
    }
    let killer = std::thread::spawn(move || {
        std::thread::sleep(linger);
        child.kill().unwrap();
        child.wait().unwrap()
    });
    for line in output {
        hear(line.unwrap());
    }
    let status = killer.join().unwrap();
    assert!(!status.success() && status.code().is_none(), "it ended by itself: {status}");
}

async fn verify(folder: &Path, said: &Said) {
    let log = Log::open(folder, Options { max_in_flight: usize::MAX, ..options() }).unwrap();
    let mut reader = match log.read(&topic(), StartAt::Beginning).await {
        // It was killed before it had made the topic.
        Err(error) if error.kind() == ErrorKind::NotFound && said.accepted.is_empty() => {
            return log.close().await.unwrap();
        }
        reader => reader.unwrap(),
    };
    let (stored, outcome) = drain(&mut *reader).await;
    outcome.unwrap();
    let mut next_offset: BTreeMap<u32, u64> = BTreeMap::new();
    let mut found = HashMap::new();
    for stored in stored {
        let expected = next_offset.entry(stored.position.partition).or_default();
        assert_eq!(stored.position.offset, *expected, "offsets have no gaps");
        *expected += 1;
        assert!(found.insert(stored.message.unwrap().id, stored.position).is_none(), "nothing stands there twice");
    }
    for (id, position) in &said.accepted {
        assert_eq!(found.get(id), Some(position), "message {id} was accepted at {position:?}");
    }
    // Whatever was not finished must still come: nothing was skipped.
    let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
    let mut missing: HashSet<_> = found.keys().copied().filter(|id| !said.finished.contains(id)).collect();
    let mut held = Vec::new();
    while !missing.is_empty() {
        let delivery = next(&mut subscriber).await;
        missing.remove(&delivery.message.as_ref().unwrap().id);
        held.push(delivery);
    }
    // They stay unfinished: to the group this subscriber was never there.
    subscriber.close().await.unwrap();
    log.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_accepted_survives_a_kill_at_any_moment() {
    let folder = tempfile::tempdir().unwrap();
    let mut said = Said::default();
    for round in 0..KILLS {
        let random = RandomState::new().build_hasher().finish();
        let (lines, linger) = (random as usize % 400, Duration::from_micros(random >> 32 & 0x1fff));
        let before = said.accepted.len();
        run_and_kill(folder.path(), lines, linger, &mut said);
        assert!(said.accepted.len() > before || lines == 0, "round {round} published nothing in {lines} lines");
        verify(folder.path(), &said).await;
    }
}
