//! A relay that is stopped in the middle of its work and goes on when another one has its shards, with real processes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use landfall_testkit::servers::{KafkaOptions, KafkaServer};
use landfall_testkit::{current_test, eventually};
use nix::sys::signal::Signal;

use super::support::{PATIENCE, Place};

const PAUSES: usize = 6;
const KEYS: i64 = 32;
/// Written at a time, so often that both relays have something in hand at any moment.
const ROWS: i64 = 64;
const EVERY: Duration = Duration::from_millis(50);

/// Writes until it is told to stop, and answers with how many messages that were: each key's numbers grow by [`KEYS`].
async fn write(place: &Place, stop: &AtomicBool) -> i64 {
    let mut tick = tokio::time::interval(EVERY);
    let mut written = 0;
    while !stop.load(Ordering::Relaxed) {
        tick.tick().await;
        let insert = format!(
            "INSERT INTO landfall_outbox (topic, key, payload)
             SELECT 'orders', 'key-' || n % {KEYS}, convert_to(n::text, 'UTF8')
             FROM generate_series({written}, {written} + {ROWS} - 1) n ORDER BY n"
        );
        place.sql(&insert).await;
        written += ROWS;
    }
    written
}

/// The most shards that one relay holds.
async fn most_held(place: &Place) -> i64 {
    let held = "SELECT coalesce(max(held.shards), 0) FROM (
                    SELECT count(*) AS shards FROM landfall_lease
                    WHERE starts_with(name, 'outbox/') AND expires_at > now() AND holder IS NOT NULL GROUP BY holder) held";
    place.count(held).await
}

async fn published(place: &Place) -> i64 {
    place.count("SELECT coalesce(sum(published), 0)::bigint FROM landfall_outbox_progress").await
}

/// What a relay had in hand when it was paused never enters behind what the next one has sent.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_was_paused_adds_nothing_late_to_kafka() {
    let Some(kafka) = KafkaServer::start(&current_test(), KafkaOptions::default()).await else { return };
    let Some(place) = Place::on_postgres().await else { return };
    let url = kafka.url().await;
    let more = if url.contains('?') { '&' } else { '?' };
    let url = format!("{url}{more}fencing=true&partitions=1");
    place.configure(&format!("[relay]\nlease_ms = 1000\n\n[broker]\nurl = {url:?}\n"));
    let relays = [place.serve_as("relay").await, place.serve_as("relay").await];
    let stop = AtomicBool::new(false);
    let pausing = async {
        for round in 0..PAUSES {
            eventually(PATIENCE, "each has its share", async || most_held(&place).await == 8).await;
            let paused = &relays[round % 2];
            paused.signal(Signal::SIGSTOP);
            eventually(PATIENCE, "the other has all shards", async || most_held(&place).await == 16).await;
            let before = published(&place).await;
            let goes_on = async || published(&place).await >= before + 10 * ROWS;
            eventually(PATIENCE, "it has sent what the paused one had in hand, and more", goes_on).await;
            paused.signal(Signal::SIGCONT);
        }
        stop.store(true, Ordering::Relaxed);
    };
    let (written, ()) = tokio::join!(write(&place, &stop), pausing);
    let all = async || published(&place).await == written;
    eventually(PATIENCE, "everything is published", all).await;

    let mut seen = BTreeSet::new();
    let mut last: BTreeMap<String, i64> = BTreeMap::new();
    for line in place.run(&["topic", "tail", "orders", "--json"]).await.objects() {
        let number = line["payload"].as_i64().unwrap();
        seen.insert(number);
        if let Some(before) = last.insert(line["key"].as_str().unwrap().to_owned(), number) {
            // A relay that takes over sends again what it cannot know to have been sent, and goes on from there.
            let is_next = number == before + KEYS || number <= before;
            assert!(is_next, "{number} follows {before}: that came late");
        }
    }
    assert_eq!(seen, (0..written).collect(), "everything is there, and nothing else");
}
