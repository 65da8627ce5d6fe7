//! A copy is let go when its original is safe, not when it can be seen. On MariaDB the one comes after the other.

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
use crate::ground::{Ground, PATIENCE, group, message, options, topic};
use crate::place::Place;

/// A server whose log can be held back, and a broker in memory.
async fn stage() -> Option<(MariaDbServer, Ground<MySql>)> {
    let server = private_mariadb_with(MariaDbOptions { holdable_log: true, ..Default::default() }).await?;
    let url = server.fresh_database().await.unwrap();
    let database = MySql::connect(&url, landfall_mysql::Options::default()).await.unwrap();
    database.prepare().await;
    Some((server, Ground { database, broker: Arc::new(MemoryBroker::new()) }))
}

/// As another member does it that got the message as well.
fn handle(database: &MySql, original: &Message) -> JoinHandle<landfall::Result<()>> {
    let (database, original) = (database.clone(), original.clone());
    tokio::spawn(async move {
        let mut transaction = database.begin().await?;
        let admission = database.admit(&mut transaction, &group(), &original, None).await?;
        assert_eq!(admission, Admission::Fresh);
        database.commit(transaction).await
    })
}

/// The consumer has seen the original, which is not on the disk, and waits until it is.
async fn let_go_in_time(server: &MariaDbServer, ground: &Ground<MySql>, handled: JoinHandle<landfall::Result<()>>) {
    let waiting = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'INSERT INTO landfall_flush %'";
    let waits = async || ground.database.number(waiting).await == 1;
    eventually(PATIENCE, "the consumer waits for the disk", waits).await;
    assert_eq!(ground.broker.unfinished(&topic(), &group()), 1, "acknowledged before it was safe");
    assert!(!handled.is_finished());
    server.release_log().unwrap();
    handled.await.unwrap().unwrap();
    ground.is_drained().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_acknowledged_when_its_original_is_on_the_disk() {
    let Some((server, ground)) = stage().await else { return };
    let original = message("a", 1, "good");
    server.hold_log().unwrap();
    let handled = handle(&ground.database, &original);
    let seen = "SELECT COUNT(*) FROM landfall_inbox";
    eventually(PATIENCE, "others see the original", async || ground.database.number(seen).await == 1).await;

    ground.publish(&[original]).await;
    let consumer = ground.consumer(options(), plain(apply::<MySql>));
    let_go_in_time(&server, &ground, handled).await;
    consumer.stop().await;
    assert!(ground.database.effects().await.is_empty(), "the copy took no effect");
}

static AT_WORK: Notify = Notify::const_new();
static GO_ON: Notify = Notify::const_new();

async fn fails_when_told(_: Context<'_, MySql>) -> Result<(), Failure> {
    AT_WORK.notify_one();
    GO_ON.notified().await;
    Err(Failure::park(ErrorCode::VALIDATION, "it never works"))
}

/// Between a handler that fails and the letter, another member brings the message to its end.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_was_to_be_parked_is_let_go_when_its_original_is_on_the_disk() {
    let Some((server, ground)) = stage().await else { return };
    let consumer = ground.consumer(options(), plain(fails_when_told));
    for number in 1.. {
        let original = message(&format!("key-{number}"), 1, "good");
        ground.publish(std::slice::from_ref(&original)).await;
        AT_WORK.notified().await;
        let other = {
            let (database, original) = (ground.database.clone(), original.clone());
            tokio::spawn(async move {
                let mut transaction = database.begin().await?;
                let admission = database.admit(&mut transaction, &group(), &original, None).await?;
                Ok::<_, landfall::Error>((transaction, admission))
            })
        };
        let queued = "SELECT CAST(variable_value AS SIGNED) FROM information_schema.global_status
            WHERE variable_name = 'INNODB_ROW_LOCK_CURRENT_WAITS'";
        eventually(PATIENCE, "the other waits for the row", async || ground.database.number(queued).await == 1).await;
        GO_ON.notify_one();
        let Ok((transaction, Admission::Fresh)) = other.await.unwrap() else {
            // The letter was faster.
            ground.is_drained().await;
            continue;
        };
        server.hold_log().unwrap();
        let database = ground.database.clone();
        let handled = tokio::spawn(async move { database.commit(transaction).await });
        let_go_in_time(&server, &ground, handled).await;
        let letters = ground.letters().await;
        assert!(letters.iter().all(|letter| letter.message_id != original.id), "it is not parked");
        break;
    }
    consumer.stop().await;
}

/// It looks whether its effect is there, and then there is nothing to do.
async fn finds_it_done(context: Context<'_, MySql>) -> Result<(), Failure> {
    let look = sqlx::query_scalar("SELECT COUNT(*) FROM effects WHERE id = ?").bind(context.message.id.to_string());
    let found: i64 = look.fetch_one(&mut *context.connection).await.map_err(Failure::retry)?;
    if found == 1 { Ok(()) } else { Err(Failure::retry("it is not there")) }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_handler_found_done_is_acknowledged_when_it_is_on_the_disk() {
    let Some((server, ground)) = stage().await else { return };
    let original = message("a", 1, "good");
    server.hold_log().unwrap();
    let handled = {
        let (database, original) = (ground.database.clone(), original.clone());
        tokio::spawn(async move {
            let mut transaction = database.begin().await?;
            MySql::record(&mut transaction, &original).await.unwrap();
            database.commit(transaction).await
        })
    };
    let seen = "SELECT COUNT(*) FROM effects";
    eventually(PATIENCE, "others see the effect", async || ground.database.number(seen).await == 1).await;

    ground.publish(&[original]).await;
    let options = Options { idempotence: Idempotence::Handler, ..options() };
    let consumer = ground.consumer(options, plain(finds_it_done));
    let_go_in_time(&server, &ground, handled).await;
    consumer.stop().await;
    assert_eq!(ground.database.effects().await.len(), 1);
}
