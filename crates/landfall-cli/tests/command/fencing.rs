//! Fencing with real processes: a relay is paused during its work and resumes after another one owns its shards.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use landfall_testkit::servers::{KafkaOptions, KafkaServer};
use landfall_testkit::{current_test, eventually};
use nix::sys::signal::Signal;

use super::support::{Sandbox, TIMEOUT};

const PAUSES: usize = 6;
const KEYS: i64 = 32;
/// Rows written at a time, often enough that both relays always have messages in flight.
const ROWS: i64 = 64;
const EVERY: Duration = Duration::from_millis(50);

/// Writes until `stop` and returns the number of messages; the numbers of a key grow by [`KEYS`].
async fn write(sandbox: &Sandbox, stop: &AtomicBool) -> i64 {
    let mut tick = tokio::time::interval(EVERY);
    let mut written = 0;
    while !stop.load(Ordering::Relaxed) {
        tick.tick().await;
        let insert = format!(
            "INSERT INTO landfall_outbox (topic, key, payload)
             SELECT 'orders', 'key-' || n % {KEYS}, convert_to(n::text, 'UTF8')
             FROM generate_series({written}, {written} + {ROWS} - 1) n ORDER BY n"
        );
        sandbox.sql(&insert).await;
        written += ROWS;
    }
    written
}

/// Returns the highest number of shards that one relay holds.
async fn most_held(sandbox: &Sandbox) -> i64 {
    let held = "SELECT coalesce(max(held.shards), 0) FROM (
                    SELECT count(*) AS shards FROM landfall_lease
                    WHERE starts_with(name, 'outbox/') AND expires_at > now() AND holder IS NOT NULL
                    GROUP BY holder) held";
    sandbox.count(held).await
}

async fn published(sandbox: &Sandbox) -> i64 {
    sandbox.count("SELECT coalesce(sum(published), 0)::bigint FROM landfall_outbox_progress").await
}

/// A paused relay's messages in flight are never stored behind those of its successor.
#[tokio::test(flavor = "multi_thread")]
async fn fenced_relay_publishes_nothing_late_to_kafka() {
    let Some(kafka) = KafkaServer::start(&current_test(), KafkaOptions::default()).await else { return };
    let Some(sandbox) = Sandbox::on_postgres().await else { return };
    let url = kafka.url().await;
    let more = if url.contains('?') { '&' } else { '?' };
    let url = format!("{url}{more}fencing=true&partitions=1");
    sandbox.configure(&format!("[relay]\nlease_ms = 1000\n\n[broker]\nurl = {url:?}\n"));
    let relays = [sandbox.serve_as("relay").await, sandbox.serve_as("relay").await];
    let stop = AtomicBool::new(false);
    let pausing = async {
        for round in 0..PAUSES {
            eventually(TIMEOUT, "each has its share", async || most_held(&sandbox).await == 8).await;
            let paused = &relays[round % 2];
            paused.signal(Signal::SIGSTOP);
            eventually(TIMEOUT, "the other has all shards", async || most_held(&sandbox).await == 16).await;
            let before = published(&sandbox).await;
            let progress = async || published(&sandbox).await >= before + 10 * ROWS;
            eventually(TIMEOUT, "it has published the paused relay's messages, and more", progress).await;
            paused.signal(Signal::SIGCONT);
        }
        stop.store(true, Ordering::Relaxed);
    };
    let (written, ()) = tokio::join!(write(&sandbox, &stop), pausing);
    let all = async || published(&sandbox).await == written;
    eventually(TIMEOUT, "everything is published", all).await;

    let mut seen = BTreeSet::new();
    let mut last: BTreeMap<String, i64> = BTreeMap::new();
    for line in sandbox.run(&["topic", "tail", "orders", "--json"]).await.objects() {
        let number = line["payload"].as_i64().unwrap();
        seen.insert(number);
        if let Some(before) = last.insert(line["key"].as_str().unwrap().to_owned(), number) {
            // A relay that takes over republishes messages with an unknown outcome, and continues from there.
            let is_next = number == before + KEYS || number <= before;
            assert!(is_next, "{number} follows {before}: published late");
        }
    }
    assert_eq!(seen, (0..written).collect(), "exactly the written messages are published");
}
