//! Kills a real process repeatedly while it publishes and consumes.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use landfall_core::{Broker, ErrorKind, MessageId, Position, StartAt};
use landfall_log::{Log, Options};
use landfall_testkit::VIOLATION;

use crate::support::*;

const KILLS: usize = 20;
const FOLDER: &str = "LANDFALL_LOG_CRASH_FOLDER";
const ACCEPTED: &str = "accepted";
const FINISHED: &str = "finished";

/// Small segments, so that kills also hit the creation of a segment.
fn options() -> Options {
    Options { segment_bytes: 16 * 1024, preallocate_bytes: 4096, partitions: 2, ..Options::default() }
}

/// Writes one line to stdout at once. The child has seen the event before the parent reads the line.
fn report(event: &str, id: MessageId, position: Position) {
    let line = format!("{event} {id} {} {}\n", position.partition, position.offset);
    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "runs as a child process that another test starts and kills"]
async fn child_publishes_and_consumes_until_killed() {
    let folder = std::env::var_os(FOLDER).expect("the parent sets the folder");
    let log = Log::open(folder, options()).unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for publisher in 0..3_i64 {
        let log = log.clone();
        tasks.spawn(async move {
            for n in 0.. {
                let batch: Vec<_> = (0..=n % 7).map(|m| message(&format!("{publisher}-{m}"), n)).collect();
                for (message, position) in batch.iter().zip(publish(&log, &batch).await) {
                    report(ACCEPTED, message.id, position);
                }
            }
        });
    }
    tasks.spawn(async move {
        let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
        while let Some(delivery) = subscriber.next().await.unwrap() {
            let (id, position) = (delivery.message.as_ref().unwrap().id, delivery.position);
            report(FINISHED, id, position);
            delivery.ack().await.unwrap();
        }
    });
    tasks.join_all().await;
}

/// The events that the child reported before it was killed.
#[derive(Default)]
struct Reported {
    accepted: HashMap<MessageId, Position>,
    finished: HashSet<MessageId>,
}

/// Starts the child, waits for at least `lines` accepted messages and for `linger`, and kills it.
fn run_and_kill(folder: &Path, lines: usize, linger: Duration, reported: &mut Reported) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "crash::child_publishes_and_consumes_until_killed"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut accepted = 0;
    let mut record = |line: String| {
        // The kill may cut a line; the parent ignores it.
        if let [event, id, partition, offset] = line.split(' ').collect::<Vec<_>>()[..]
            && (event == ACCEPTED || event == FINISHED)
            && let (Ok(id), Ok(partition), Ok(offset)) = (id.parse(), partition.parse(), offset.parse())
        {
            if event == ACCEPTED {
                accepted += 1;
                reported.accepted.insert(id, Position { partition, offset });
            } else {
                reported.finished.insert(id);
            }
        }
        accepted
    };
    for line in output.by_ref() {
        if record(line.unwrap()) >= lines {
            break;
        }
    }
    let killer = std::thread::spawn(move || {
        std::thread::sleep(linger);
        child.kill().unwrap();
        child.wait().unwrap()
    });
    for line in output {
        record(line.unwrap());
    }
    let status = killer.join().unwrap();
    assert!(!status.success() && status.code().is_none(), "the child exited before the kill: {status}");
}

async fn verify(folder: &Path, reported: &Reported) {
    let log = Log::open(folder, Options { max_in_flight: usize::MAX, ..options() }).unwrap();
    let mut reader = match log.read(&topic(), StartAt::Beginning).await {
        // The child was killed before it had created the topic.
        Err(error) if error.kind() == ErrorKind::NotFound && reported.accepted.is_empty() => {
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
        assert_eq!(stored.position.offset, *expected, "{VIOLATION} offsets have a gap");
        *expected += 1;
        assert!(
            found.insert(stored.message.unwrap().id, stored.position).is_none(),
            "{VIOLATION} a message is stored twice"
        );
    }
    for (id, position) in &reported.accepted {
        assert_eq!(found.get(id), Some(position), "{VIOLATION} message {id} was accepted at {position:?}");
    }
    // Every unfinished message is still delivered: nothing was skipped.
    let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
    let mut missing: HashSet<_> = found.keys().copied().filter(|id| !reported.finished.contains(id)).collect();
    let mut held = Vec::new();
    while !missing.is_empty() {
        let delivery = next(&mut subscriber).await;
        missing.remove(&delivery.message.as_ref().unwrap().id);
        held.push(delivery);
    }
    // The deliveries stay unacknowledged, so this subscriber leaves no trace in the group.
    subscriber.close().await.unwrap();
    log.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn accepted_messages_survive_a_kill_at_any_moment() {
    let folder = tempfile::tempdir().unwrap();
    let mut reported = Reported::default();
    for round in 0..KILLS {
        let random = RandomState::new().build_hasher().finish();
        let (lines, linger) = (random as usize % 400, Duration::from_micros(random >> 32 & 0x1fff));
        let before = reported.accepted.len();
        run_and_kill(folder.path(), lines, linger, &mut reported);
        assert!(reported.accepted.len() > before || lines == 0, "round {round} published nothing in {lines} lines");
        verify(folder.path(), &reported).await;
    }
}
