//! Housekeeping on a real database: what has had its time goes, everything else stays, and one at a time does it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use landfall::adapter::LeaseName;
use landfall::consume::Context;
use landfall::housekeeping::{Housekeeper, Policy, Span};
use landfall::relay::{self, Relay};
use landfall::{
    Broker, DeadLetterFilter, DeadLetterStatus, DeadLetters, ErrorCode, Failure, Holder, Leases, OutboxFilter,
    OutboxState, OutboxView,
};
use landfall_sqlite::{Options, Sqlite};
use landfall_testkit::eventually;
use tokio::task::JoinHandle;

use crate::stage::{PATIENCE, QUICK, Stage, Watched, message};

const LEASE: &str = "housekeeping";

fn keeper(stage: &Stage, policy: Policy) -> JoinHandle<landfall::Result<()>> {
    let database = Arc::new(stage.database.clone());
    // Small steps and short rounds, so that several of both are seen.
    let policy = Policy { step: 3, interval: Duration::from_millis(10), ..policy };
    tokio::spawn(Housekeeper::new(database.clone(), database, policy).run(stage.stop.clone()))
}

fn everything_goes() -> Policy {
    Policy { sent: Span::ZERO, inbox: Span::ZERO, dead_letters: Span::ZERO, ..Policy::default() }
}

async fn count(stage: &Stage, table: &'static str) -> i64 {
    let query = match table {
        "inbox" => "SELECT count(*) FROM landfall_inbox",
        "sent" => "SELECT count(*) FROM landfall_outbox_sent",
        "sequence" => "SELECT count(*) FROM landfall_sequence",
        _ => "SELECT count(*) FROM landfall_audit",
    };
    sqlx::query_scalar(query).fetch_one(stage.database.pool()).await.unwrap()
}

/// A handler without an effect.
fn nothing(_: Context<'_, Sqlite>) -> BoxFuture<'_, Result<(), Failure>> {
    Box::pin(std::future::ready(Ok(())))
}

/// Parks what has no headers.
fn fails_unless_repaired(context: Context<'_, Sqlite>) -> BoxFuture<'_, Result<(), Failure>> {
    let is_repaired = context.message.headers.to_json() != "{}";
    let failure = || Failure::park(ErrorCode::new("BAD"), "bad");
    Box::pin(std::future::ready(if is_repaired { Ok(()) } else { Err(failure()) }))
}

/// Ten messages sent and kept by a relay of its own.
async fn send_and_keep(stage: &Stage) {
    let file = stage.database.pool().connect_options().get_filename().display().to_string();
    let options = Options { keep_sent: Some(PATIENCE), ..Options::default() };
    let keeping = Sqlite::open(&file, options).await.unwrap();
    let options = relay::Options { backoff: QUICK, ..Default::default() };
    let stop = stage.stop.child_token();
    let relay = Relay::builder(keeping, stage.broker.publisher()).options(options).build().unwrap();
    let relay = tokio::spawn(relay.run(stop.clone()));
    stage.append(&(1..=10).map(|n| message("a", n)).collect::<Vec<_>>()).await;
    eventually(PATIENCE, "sent", async || stage.stats().await.published == 10).await;
    stop.cancel();
    relay.await.unwrap().unwrap();
    assert_eq!(count(stage, "sent").await, 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_had_its_time_goes_in_small_steps() {
    let stage = Stage::new().await;
    send_and_keep(&stage).await;
    let consumer = stage.consumer(nothing);
    eventually(PATIENCE, "handled", async || count(&stage, "inbox").await == 10).await;
    let keeper = keeper(&stage, everything_goes());
    eventually(PATIENCE, "all is gone", async || count(&stage, "sent").await == 0 && count(&stage, "inbox").await == 0)
        .await;
    stage.stop.cancel();
    keeper.await.unwrap().unwrap();
    consumer.await.unwrap().unwrap();
    let held = stage.database.held(LEASE).await.unwrap();
    assert!(held.is_empty(), "the lease is given back: {held:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_to_be_kept_stays() {
    let stage = Stage::new().await;
    send_and_keep(&stage).await;
    stage.consumer(nothing);
    eventually(PATIENCE, "handled", async || count(&stage, "inbox").await == 10).await;
    // Only the inbox is for now: once it is empty, a round has been through everything.
    let policy = Policy { sent: Span::Forever, inbox: Span::ZERO, dead_letters: Span::days(1), ..Policy::default() };
    keeper(&stage, policy);
    eventually(PATIENCE, "the inbox is empty", async || count(&stage, "inbox").await == 0).await;
    let sent = OutboxFilter { state: Some(OutboxState::Sent), ..Default::default() };
    assert_eq!(stage.database.list(&sent, 100).await.unwrap().len(), 10);
}

/// One of an entity that came to an end long ago, and one of another that a message came for a moment ago.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_reached_with_an_entity_goes_by_policy_and_by_default_never() {
    let stage = Stage::new().await;
    let insert = "INSERT INTO landfall_sequence (consumer_group, topic, key, reached, since)
        VALUES ('stock', 'orders', 'ended', 7, 0), ('stock', 'orders', 'alive', 7, 4102444800000)";
    sqlx::query(insert).execute(stage.database.pool()).await.unwrap();
    stage.publish(&[message("a", 1)]).await;
    let consumer = stage.consumer(nothing);
    eventually(PATIENCE, "handled", async || count(&stage, "inbox").await == 1).await;
    let forever = keeper(&stage, everything_goes());
    // Once the inbox is empty a round has been through everything.
    eventually(PATIENCE, "the inbox is empty", async || count(&stage, "inbox").await == 0).await;
    assert_eq!(count(&stage, "sequence").await, 2);
    let days = keeper(&stage, Policy { sequences: Span::days(1), ..everything_goes() });
    eventually(PATIENCE, "one is gone", async || count(&stage, "sequence").await == 1).await;
    stage.stop.cancel();
    for task in [forever, days, consumer] {
        task.await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_done_dead_letter_goes_and_a_parked_one_stays_however_old_it_is() {
    let stage = Stage::new().await;
    let consumer = stage.consumer(fails_unless_repaired);
    stage.publish(&[message("done", 1), message("parked", 1)]).await;
    eventually(PATIENCE, "both are parked", async || stage.parked().await == 2).await;
    // Repaired by a person, and redriven.
    let repair = r#"UPDATE landfall_dead_letter SET headers = '{"repaired":"yes"}' WHERE key = 'done'"#;
    sqlx::query(repair).execute(stage.database.pool()).await.unwrap();
    let filter = DeadLetterFilter { key: Some(landfall::Key::new("done").unwrap()), ..Default::default() };
    stage.database.redrive(&filter, "test").await.unwrap();
    let done = async || stage.database.dead_letter_stats().await.unwrap().done;
    eventually(PATIENCE, "one is done", async || done().await == 1).await;
    let audit = count(&stage, "audit").await;

    let keeper = keeper(&stage, everything_goes());
    eventually(PATIENCE, "the done one is gone", async || done().await == 0).await;
    eventually(PATIENCE, "and its id", async || count(&stage, "inbox").await == 1).await;
    let left = stage.database.find(&DeadLetterFilter::default(), 10).await.unwrap();
    assert_eq!(left.iter().map(|letter| letter.status).collect::<Vec<_>>(), [DeadLetterStatus::Parked]);
    assert_eq!(count(&stage, "audit").await, audit);
    stage.stop.cancel();
    keeper.await.unwrap().unwrap();
    consumer.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_at_a_time_keeps_house() {
    let stage = Stage::new().await;
    stage.consumer(nothing);
    let name = LeaseName(LEASE.to_owned());
    let long = Duration::from_secs(3600);
    let elsewhere = stage.database.acquire(&name, &Holder("elsewhere".into()), long).await.unwrap().unwrap();
    stage.publish(&[message("a", 1)]).await;
    eventually(PATIENCE, "handled", async || count(&stage, "inbox").await == 1).await;
    let asked = Arc::new(tokio::sync::Notify::new());
    let keeper = {
        let database = Arc::new(stage.database.clone());
        let asked = asked.clone();
        let leases = Arc::new(Watched { leases: stage.database.clone(), asked: move || asked.notify_one() });
        let policy = Policy { interval: Duration::from_millis(1), ..everything_goes() };
        tokio::spawn(Housekeeper::new(database, leases, policy).run(stage.stop.clone()))
    };
    for _ in 0..3 {
        tokio::time::timeout(PATIENCE, asked.notified()).await.unwrap();
    }
    assert_eq!(count(&stage, "inbox").await, 1, "somebody else has the lease");
    stage.database.release(&[elsewhere]).await.unwrap();
    eventually(PATIENCE, "now it is ours", async || count(&stage, "inbox").await == 0).await;
    stage.stop.cancel();
    keeper.await.unwrap().unwrap();
}
