//! The relay against a real outbox: order, backoff, parking, outages and the three modes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Instant;

use crate::fixture::{Fixture, ObservedLeases, QUICK, TIMEOUT, message, topic};
use landfall::relay::Relay;
use landfall::{
    Broker, DeadLetterFilter, DeadLetters, ErrorKind, Message, Mode, OutboxFilter, OutboxQueue, OutboxState,
    OutboxView, Outcome, Publisher, Schema,
};
use landfall_postgres::Postgres;
use landfall_testkit::servers::fresh_postgres_database;
use landfall_testkit::{Fault, MemoryBroker, assert_no_violation, eventually};
use tokio_util::sync::CancellationToken;

#[tokio::test(flavor = "multi_thread")]
async fn committed_messages_are_published_in_order_and_removed() {
    let fixture = Fixture::new().await;
    let messages: Vec<_> = (1..=1200).map(|n| message("a", n)).collect();
    fixture.append(&messages).await;
    let relay = fixture.relay();
    eventually(TIMEOUT, "everything published", async || fixture.stats().await.published == 1200).await;
    let expected: Vec<_> = (1..=1200).map(|n| format!("a{n}")).collect();
    assert_eq!(fixture.published(), expected);
    assert_eq!(fixture.stats().await.pending, 0);
    fixture.stop.cancel();
    relay.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_head_blocks_only_its_own_key() {
    let fixture = Fixture::new().await;
    fixture.broker.fail_when(|message| message.payload.starts_with(b"a1"), Fault::Refuse);
    fixture.append(&[message("a", 1), message("b", 1), message("a", 2), message("b", 2)]).await;
    fixture.relay();
    eventually(TIMEOUT, "the head is parked", async || fixture.stats().await.parked == 1).await;
    eventually(TIMEOUT, "the other key is published", async || fixture.stats().await.published == 2).await;
    assert_eq!(fixture.published(), ["b1", "b2"]);
    assert_eq!(fixture.stats().await.pending, 1, "the successor waits behind the parked head");

    let parked = fixture.database.find(&DeadLetterFilter::default(), 10).await.unwrap();
    assert_eq!((parked[0].error_code.as_str(), parked[0].attempts, &parked[0].group), ("FULL", 3, &None));

    fixture.broker.heal();
    let redriven = fixture.database.redrive(&DeadLetterFilter::default(), "test").await.unwrap();
    assert_eq!(redriven.redriven, [parked[0].id]);
    eventually(TIMEOUT, "the key drained", async || fixture.stats().await.published == 4).await;
    assert_eq!(fixture.published(), ["b1", "b2", "a1", "a2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_outcome_is_republished_under_the_same_id() {
    let fixture = Fixture::new().await;
    fixture.broker.fail_next(1, Fault::UnknownAndStored);
    let sent = message("a", 1);
    fixture.append(std::slice::from_ref(&sent)).await;
    fixture.relay();
    eventually(TIMEOUT, "published", async || fixture.stats().await.published == 1).await;
    let ids: Vec<_> = fixture.broker.published().iter().map(|(_, message)| message.id).collect();
    assert_eq!(ids, [sent.id, sent.id], "the stored copy and the one that was sent again");
}

#[tokio::test(flavor = "multi_thread")]
async fn broker_outage_costs_no_attempts() {
    let fixture = Fixture::new().await;
    // Far more refusals than a message has attempts.
    fixture.broker.fail_next(30, Fault::Unavailable);
    fixture.append(&[message("a", 1), message("a", 2), message("b", 1)]).await;
    fixture.relay();
    eventually(TIMEOUT, "published after the outage", async || fixture.stats().await.published == 3).await;
    assert_eq!(fixture.parked().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn message_of_a_missing_topic_waits_with_its_reason() {
    let fixture = Fixture::new().await;
    fixture.broker.fail_when(|message| message.payload.starts_with(b"a"), Fault::UnknownTopic);
    fixture.append(&[message("a", 1), message("a", 2), message("b", 1)]).await;
    fixture.relay();
    let row = async || fixture.database.list(&OutboxFilter::default(), 10).await.unwrap().into_iter().next();
    eventually(TIMEOUT, "more attempts than a message has", async || {
        row().await.is_some_and(|row| row.attempts > 2 * QUICK.max_attempts)
    })
    .await;
    let row = row().await.unwrap();
    assert_eq!((row.state, fixture.parked().await), (OutboxState::Retrying, 0));
    assert!(row.last_error.as_deref().is_some_and(|error| error.starts_with("UNKNOWN_TOPIC: ")), "{row:?}");
    fixture.broker.heal();
    eventually(TIMEOUT, "published", async || fixture.stats().await.published == 3).await;
    assert_eq!(fixture.published(), ["b1", "a1", "a2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn at_most_once_message_is_never_published_twice() {
    let fixture = Fixture::new().await;
    fixture.broker.fail_next(1, Fault::Refuse);
    let once = Message::new(topic(), "lost").with_mode(Mode::AtMostOnce);
    fixture.append(std::slice::from_ref(&once)).await;
    fixture.relay();
    eventually(TIMEOUT, "gone from the outbox", async || fixture.stats().await.published == 1).await;
    fixture.append(&[message("a", 1)]).await;
    eventually(TIMEOUT, "the next one", async || fixture.stats().await.published == 2).await;
    assert_eq!(fixture.published(), ["a1"]);
    assert_eq!(fixture.parked().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_plain_sql_row_is_parked_and_holds_its_key() {
    let fixture = Fixture::new().await;
    let insert = "INSERT INTO landfall_outbox (topic, key, headers, payload) VALUES ('orders', 'a', ?, ?)";
    sqlx::query(insert).bind(r#"{"x": "a\r\nb"}"#).bind("bad").execute(fixture.database.pool()).await.unwrap();
    sqlx::query(insert).bind("{}").bind(vec![b'x'; 2 * 1024 * 1024]).execute(fixture.database.pool()).await.unwrap();
    fixture.append(&[message("a", 1), message("b", 1)]).await;
    fixture.relay();
    eventually(TIMEOUT, "the good one", async || fixture.stats().await.published == 1).await;
    eventually(TIMEOUT, "the bad one is parked", async || fixture.parked().await >= 1).await;
    assert_eq!(fixture.published(), ["b1"]);
    let parked = fixture.database.find(&DeadLetterFilter::default(), 10).await.unwrap();
    assert_eq!(parked[0].error_code, "VALIDATION_ERROR");
    assert!(parked[0].error.contains("CR, LF and NUL"), "{}", parked[0].error);
}

/// A publisher that counts what its relay publishes.
struct CountingPublisher {
    publisher: Arc<dyn Publisher>,
    published: Arc<AtomicUsize>,
}

#[async_trait::async_trait]
impl Publisher for CountingPublisher {
    async fn publish(&self, batch: &[Message]) -> Vec<Outcome> {
        self.published.fetch_add(batch.len(), Ordering::Relaxed);
        self.publisher.publish(batch).await
    }
}

/// On PostgreSQL, because the outbox of SQLite has only one shard.
#[tokio::test(flavor = "multi_thread")]
async fn two_relays_share_the_shards_and_publish_nothing_twice() {
    let Some(url) = fresh_postgres_database().await else { return };
    let database = Postgres::connect(&url, Default::default()).await.unwrap();
    database.migrate().await.unwrap();
    let (broker, stop) = (MemoryBroker::new(), CancellationToken::new());
    let counts = [Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0))];
    let relays = counts.clone().map(|published| {
        let publisher = CountingPublisher { publisher: broker.publisher(), published };
        let relay = Relay::builder(database.clone(), Arc::new(publisher)).build().unwrap();
        tokio::spawn(relay.run(stop.clone()))
    });
    let (mut sent, deadline) = (0, Instant::now() + TIMEOUT);
    // One relay may hold every shard at first.
    while counts.iter().any(|count| count.load(Ordering::Relaxed) < 50) {
        assert!(Instant::now() < deadline, "a relay publishes nothing: {counts:?}");
        let batch: Vec<_> = (0..40).map(|key| message(&format!("key-{key}"), sent)).collect();
        database.append(&batch).await.unwrap();
        sent += 1;
        let all = 40 * sent as u64;
        eventually(TIMEOUT, "published", async || database.stats().await.unwrap().published == all).await;
    }
    let mut published: HashMap<_, Vec<i64>> = HashMap::new();
    for (_, message) in broker.published() {
        published.entry(message.key).or_default().extend(message.sequence);
    }
    let expected: Vec<i64> = (0..sent).collect();
    let is_clean = published.len() == 40 && published.values().all(|numbers| *numbers == expected);
    assert_no_violation(is_clean, format!("each message once, in the order of its key: {published:?}"));
    stop.cancel();
    for relay in relays {
        relay.await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_relay_leaves_its_shards_to_others() {
    let fixture = Fixture::new().await;
    let dropped = fixture.relay();
    fixture.append(&[message("a", 1)]).await;
    eventually(TIMEOUT, "the relay publishes", async || fixture.stats().await.published == 1).await;
    // It is dropped without being stopped.
    dropped.abort();
    assert!(dropped.await.unwrap_err().is_cancelled());
    let keys: Vec<_> = (0..40).map(|key| message(&format!("key-{key}"), 1)).collect();
    fixture.append(&keys).await;
    fixture.relay();
    eventually(TIMEOUT, "every shard is leased again", async || fixture.stats().await.published == 41).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn relay_fails_when_its_lease_task_panics() {
    let fixture = Fixture::new().await;
    let requests = AtomicU32::new(0);
    let panics = move || assert!(requests.fetch_add(1, Ordering::Relaxed) < 20, "injected panic");
    let leases = Arc::new(ObservedLeases { leases: fixture.database.clone(), requested: panics });
    let queue = Arc::new(fixture.database.clone());
    let relay = Relay::builder_from_parts(queue, leases, fixture.broker.publisher()).build().unwrap();
    let ended = tokio::time::timeout(TIMEOUT, relay.run(fixture.stop.clone())).await.expect("the relay stops");
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::Internal);
    assert!(!fixture.stop.is_cancelled(), "the caller's token is not cancelled");
}
