//! Housekeeping on a real database: expired rows are removed, others are kept, one housekeeper works at a time.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use landfall::adapter::LeaseName;
use landfall::consume::Context;
use landfall::housekeeping::{Housekeeper, Policy, Span};
use landfall::relay::{self, Relay};
use landfall::{
    Broker, DeadLetterFilter, DeadLetterStatus, DeadLetters, ErrorCode, ErrorKind, Failure, Holder, Leases,
    OutboxFilter, OutboxState, OutboxView,
};
use landfall_sqlite::{Options, Sqlite};
use landfall_testkit::eventually;
use tokio::task::JoinHandle;

use crate::fixture::{Fixture, ObservedLeases, QUICK, TIMEOUT, message};

const LEASE: &str = "housekeeping";

fn housekeeper(fixture: &Fixture, policy: Policy) -> JoinHandle<landfall::Result<()>> {
    let database = Arc::new(fixture.database.clone());
    // Small steps and short rounds, so that there are several of both.
    let policy = Policy { step: 3, interval: Duration::from_millis(10), ..policy };
    tokio::spawn(Housekeeper::new(database.clone(), database, policy).unwrap().run(fixture.stop.clone()))
}

fn everything_expired() -> Policy {
    Policy { sent: Span::ZERO, inbox: Span::ZERO, dead_letters: Span::ZERO, ..Policy::default() }
}

async fn count(fixture: &Fixture, table: &'static str) -> i64 {
    let query = match table {
        "inbox" => "SELECT count(*) FROM landfall_inbox",
        "sent" => "SELECT count(*) FROM landfall_outbox_sent",
        "sequence" => "SELECT count(*) FROM landfall_sequence",
        _ => "SELECT count(*) FROM landfall_audit",
    };
    sqlx::query_scalar(query).fetch_one(fixture.database.pool()).await.unwrap()
}

/// A handler without an effect.
fn nothing(_: Context<'_, Sqlite>) -> BoxFuture<'_, Result<(), Failure>> {
    Box::pin(std::future::ready(Ok(())))
}

/// Parks messages without headers.
fn fails_unless_repaired(context: Context<'_, Sqlite>) -> BoxFuture<'_, Result<(), Failure>> {
    let is_repaired = context.message.headers.to_json() != "{}";
    let failure = || Failure::park(ErrorCode::new("BAD"), "bad");
    Box::pin(std::future::ready(if is_repaired { Ok(()) } else { Err(failure()) }))
}

/// Publishes ten messages with a relay that keeps sent rows.
async fn send_and_keep(fixture: &Fixture) {
    let file = fixture.database.pool().connect_options().get_filename().display().to_string();
    let options = Options { keep_sent: Some(TIMEOUT), ..Options::default() };
    let keeping = Sqlite::open(&file, options).await.unwrap();
    let options = relay::Options { backoff: QUICK, ..Default::default() };
    let stop = fixture.stop.child_token();
    let relay = Relay::builder(keeping, fixture.broker.publisher()).options(options).build().unwrap();
    let relay = tokio::spawn(relay.run(stop.clone()));
    fixture.append(&(1..=10).map(|n| message("a", n)).collect::<Vec<_>>()).await;
    eventually(TIMEOUT, "sent", async || fixture.stats().await.published == 10).await;
    stop.cancel();
    relay.await.unwrap().unwrap();
    assert_eq!(count(fixture, "sent").await, 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_rows_are_removed_in_small_steps() {
    let fixture = Fixture::new().await;
    send_and_keep(&fixture).await;
    let consumer = fixture.consumer(nothing);
    eventually(TIMEOUT, "handled", async || count(&fixture, "inbox").await == 10).await;
    let housekeeper = housekeeper(&fixture, everything_expired());
    eventually(TIMEOUT, "every expired row is removed", async || {
        count(&fixture, "sent").await == 0 && count(&fixture, "inbox").await == 0
    })
    .await;
    fixture.stop.cancel();
    housekeeper.await.unwrap().unwrap();
    consumer.await.unwrap().unwrap();
    let held = fixture.database.held(LEASE).await.unwrap();
    assert!(held.is_empty(), "the lease is released: {held:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unexpired_rows_are_kept() {
    let fixture = Fixture::new().await;
    send_and_keep(&fixture).await;
    fixture.consumer(nothing);
    eventually(TIMEOUT, "handled", async || count(&fixture, "inbox").await == 10).await;
    // Only the inbox expires: once it is empty, a round has visited every table.
    let policy = Policy { sent: Span::Forever, inbox: Span::ZERO, dead_letters: Span::days(1), ..Policy::default() };
    housekeeper(&fixture, policy);
    eventually(TIMEOUT, "the inbox is empty", async || count(&fixture, "inbox").await == 0).await;
    let sent = OutboxFilter { state: Some(OutboxState::Sent), ..Default::default() };
    assert_eq!(fixture.database.list(&sent, 100).await.unwrap().len(), 10);
}

/// One entity had its last message long ago, the other a moment ago.
#[tokio::test(flavor = "multi_thread")]
async fn sequences_are_removed_only_by_policy() {
    let fixture = Fixture::new().await;
    let insert = "INSERT INTO landfall_sequence (consumer_group, topic, key, reached, since)
        VALUES ('stock', 'orders', 'ended', 7, 0), ('stock', 'orders', 'alive', 7, 4102444800000)";
    sqlx::query(insert).execute(fixture.database.pool()).await.unwrap();
    fixture.publish(&[message("a", 1)]).await;
    let consumer = fixture.consumer(nothing);
    eventually(TIMEOUT, "handled", async || count(&fixture, "inbox").await == 1).await;
    let forever = housekeeper(&fixture, everything_expired());
    // Once the inbox is empty, a round has visited every table.
    eventually(TIMEOUT, "the inbox is empty", async || count(&fixture, "inbox").await == 0).await;
    assert_eq!(count(&fixture, "sequence").await, 2);
    let days = housekeeper(&fixture, Policy { sequences: Span::days(1), ..everything_expired() });
    eventually(TIMEOUT, "one is removed", async || count(&fixture, "sequence").await == 1).await;
    fixture.stop.cancel();
    for task in [forever, days, consumer] {
        task.await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn done_dead_letters_are_removed_and_parked_ones_kept() {
    let fixture = Fixture::new().await;
    let consumer = fixture.consumer(fails_unless_repaired);
    fixture.publish(&[message("done", 1), message("parked", 1)]).await;
    eventually(TIMEOUT, "both are parked", async || fixture.parked().await == 2).await;
    // Repaired by an operator and redriven.
    let repair = r#"UPDATE landfall_dead_letter SET headers = '{"repaired":"yes"}' WHERE key = 'done'"#;
    sqlx::query(repair).execute(fixture.database.pool()).await.unwrap();
    let filter = DeadLetterFilter { key: Some(landfall::Key::new("done").unwrap()), ..Default::default() };
    fixture.database.redrive(&filter, "test").await.unwrap();
    let done = async || fixture.database.dead_letter_stats().await.unwrap().done;
    eventually(TIMEOUT, "one is done", async || done().await == 1).await;
    let audit = count(&fixture, "audit").await;

    let housekeeper = housekeeper(&fixture, everything_expired());
    eventually(TIMEOUT, "the done dead letter is removed", async || done().await == 0).await;
    eventually(TIMEOUT, "its id is removed", async || count(&fixture, "inbox").await == 1).await;
    let left = fixture.database.find(&DeadLetterFilter::default(), 10).await.unwrap();
    assert_eq!(left.iter().map(|letter| letter.status).collect::<Vec<_>>(), [DeadLetterStatus::Parked]);
    assert_eq!(count(&fixture, "audit").await, audit);
    fixture.stop.cancel();
    housekeeper.await.unwrap().unwrap();
    consumer.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_housekeeper_works_at_a_time() {
    let fixture = Fixture::new().await;
    fixture.consumer(nothing);
    let name = LeaseName(LEASE.to_owned());
    let long = Duration::from_secs(3600);
    let other = fixture.database.acquire(&name, &Holder("other".into()), long).await.unwrap().unwrap();
    fixture.publish(&[message("a", 1)]).await;
    eventually(TIMEOUT, "handled", async || count(&fixture, "inbox").await == 1).await;
    let requested = Arc::new(tokio::sync::Notify::new());
    let housekeeper = {
        let database = Arc::new(fixture.database.clone());
        let requested = requested.clone();
        let leases =
            Arc::new(ObservedLeases { leases: fixture.database.clone(), requested: move || requested.notify_one() });
        let policy = Policy { interval: Duration::from_millis(1), ..everything_expired() };
        tokio::spawn(Housekeeper::new(database, leases, policy).unwrap().run(fixture.stop.clone()))
    };
    for _ in 0..3 {
        tokio::time::timeout(TIMEOUT, requested.notified()).await.unwrap();
    }
    assert_eq!(count(&fixture, "inbox").await, 1, "another holder has the lease");
    fixture.database.release(&[other]).await.unwrap();
    eventually(TIMEOUT, "the housekeeper works with the lease", async || count(&fixture, "inbox").await == 0).await;
    fixture.stop.cancel();
    housekeeper.await.unwrap().unwrap();
}

#[tokio::test]
async fn policy_out_of_range_is_refused_by_name() {
    let fixture = Fixture::new().await;
    let database = Arc::new(fixture.database.clone());
    let default = Policy::default;
    for (policy, option) in [
        (Policy { step: 0, ..default() }, "step is 0"),
        (Policy { interval: Duration::ZERO, ..default() }, "interval is zero"),
        (Policy { lease_ttl: Duration::ZERO, ..default() }, "lease_ttl is zero"),
    ] {
        let error = Housekeeper::new(database.clone(), database.clone(), policy).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(option), "{error}");
    }
}
