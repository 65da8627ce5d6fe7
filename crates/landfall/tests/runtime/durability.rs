//! A duplicate is acknowledged when its original is durable, not when it is visible. On MariaDB a commit becomes
//! visible before it is durable.

use std::sync::Arc;

use landfall::adapter::Admission;
use landfall::consume::{Context, Idempotence, Options, plain};
use landfall::{Database, ErrorCode, Failure, Inbox, Message};
use landfall_mysql::MySql;
use landfall_testkit::servers::{MariaDbOptions, MariaDbServer, private_mariadb_with};
use landfall_testkit::{MemoryBroker, eventually};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::batches::apply;
use crate::database::TestDatabase;
use crate::fixture::{Fixture, TIMEOUT, group, message, options, topic};

/// A server whose log writes can be held back, and the in-memory broker.
async fn server_and_fixture() -> Option<(MariaDbServer, Fixture<MySql>)> {
    let server = private_mariadb_with(MariaDbOptions { holdable_log: true, ..Default::default() }).await?;
    let url = server.fresh_database().await.unwrap();
    let database = MySql::connect(&url, landfall_mysql::Options::default()).await.unwrap();
    database.prepare().await;
    Some((server, Fixture { database, broker: Arc::new(MemoryBroker::new()) }))
}

/// Handles a message as another member that received it too.
fn handle_elsewhere(database: &MySql, original: &Message) -> JoinHandle<landfall::Result<()>> {
    let (database, original) = (database.clone(), original.clone());
    tokio::spawn(async move {
        let mut transaction = database.begin().await?;
        let admission = database.admit(&mut transaction, &group(), &original, None).await?;
        assert_eq!(admission, Admission::Fresh);
        database.commit(transaction).await
    })
}

/// Asserts that the consumer, which has seen the original, acknowledges only after it is durable.
async fn acknowledged_after_release(
    server: &MariaDbServer,
    fixture: &Fixture<MySql>,
    handled: JoinHandle<landfall::Result<()>>,
) {
    let waiting = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'INSERT INTO landfall_flush %'";
    let waits = async || fixture.database.number(waiting).await == 1;
    eventually(TIMEOUT, "the consumer waits for the flush", waits).await;
    assert_eq!(fixture.broker.unfinished(&topic(), &group()), 1, "acknowledged before the original was durable");
    assert!(!handled.is_finished());
    server.release_log().unwrap();
    handled.await.unwrap().unwrap();
    fixture.is_drained().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicate_is_acknowledged_after_the_original_is_durable() {
    let Some((server, fixture)) = server_and_fixture().await else { return };
    let original = message("a", 1, "good");
    server.hold_log().unwrap();
    let handled = handle_elsewhere(&fixture.database, &original);
    let seen = "SELECT COUNT(*) FROM landfall_inbox";
    eventually(TIMEOUT, "the original is visible", async || fixture.database.number(seen).await == 1).await;

    fixture.publish(&[original]).await;
    let consumer = fixture.consumer(options(), plain(apply::<MySql>));
    acknowledged_after_release(&server, &fixture, handled).await;
    consumer.stop().await;
    assert!(fixture.database.effects().await.is_empty(), "the duplicate took no effect");
}

static STARTED: Notify = Notify::const_new();
static PROCEED: Notify = Notify::const_new();

async fn fails_on_signal(_: Context<'_, MySql>) -> Result<(), Failure> {
    STARTED.notify_one();
    PROCEED.notified().await;
    Err(Failure::park(ErrorCode::VALIDATION, "it never works"))
}

/// Another member handles the message between the failure of the handler and its dead letter.
#[tokio::test(flavor = "multi_thread")]
async fn parking_a_duplicate_waits_for_the_original_to_be_durable() {
    let Some((server, fixture)) = server_and_fixture().await else { return };
    let consumer = fixture.consumer(options(), plain(fails_on_signal));
    for number in 1.. {
        let original = message(&format!("key-{number}"), 1, "good");
        fixture.publish(std::slice::from_ref(&original)).await;
        STARTED.notified().await;
        let other = {
            let (database, original) = (fixture.database.clone(), original.clone());
            tokio::spawn(async move {
                let mut transaction = database.begin().await?;
                let admission = database.admit(&mut transaction, &group(), &original, None).await?;
                Ok::<_, landfall::Error>((transaction, admission))
            })
        };
        let queued = "SELECT CAST(variable_value AS SIGNED) FROM information_schema.global_status
            WHERE variable_name = 'INNODB_ROW_LOCK_CURRENT_WAITS'";
        eventually(TIMEOUT, "the other member waits for the row", async || fixture.database.number(queued).await == 1)
            .await;
        PROCEED.notify_one();
        let Ok((transaction, Admission::Fresh)) = other.await.unwrap() else {
            // The dead letter was written first.
            fixture.is_drained().await;
            continue;
        };
        server.hold_log().unwrap();
        let database = fixture.database.clone();
        let handled = tokio::spawn(async move { database.commit(transaction).await });
        acknowledged_after_release(&server, &fixture, handled).await;
        let letters = fixture.letters().await;
        assert!(letters.iter().all(|letter| letter.message_id != original.id), "the message is not parked");
        break;
    }
    consumer.stop().await;
}

/// Reads its effect and, if it is there, does nothing.
async fn finds_its_effect(context: Context<'_, MySql>) -> Result<(), Failure> {
    let query = sqlx::query_scalar("SELECT COUNT(*) FROM effects WHERE id = ?").bind(context.message.id.to_string());
    let found: i64 = query.fetch_one(&mut *context.connection).await.map_err(Failure::retry)?;
    if found == 1 { Ok(()) } else { Err(Failure::retry("no effect yet")) }
}

#[tokio::test(flavor = "multi_thread")]
async fn effect_found_by_the_handler_is_acknowledged_after_it_is_durable() {
    let Some((server, fixture)) = server_and_fixture().await else { return };
    let original = message("a", 1, "good");
    server.hold_log().unwrap();
    let handled = {
        let (database, original) = (fixture.database.clone(), original.clone());
        tokio::spawn(async move {
            let mut transaction = database.begin().await?;
            MySql::record(&mut transaction, &original).await.unwrap();
            database.commit(transaction).await
        })
    };
    let seen = "SELECT COUNT(*) FROM effects";
    eventually(TIMEOUT, "the effect is visible", async || fixture.database.number(seen).await == 1).await;

    fixture.publish(&[original]).await;
    let options = Options { idempotence: Idempotence::Handler, ..options() };
    let consumer = fixture.consumer(options, plain(finds_its_effect));
    acknowledged_after_release(&server, &fixture, handled).await;
    consumer.stop().await;
    assert_eq!(fixture.database.effects().await.len(), 1);
}
