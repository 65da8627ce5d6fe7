//! A dump is restored into another cluster with other transaction ids. Unsent messages are sent, sent ones are not, and
//! new rows are not mistaken for old ones.

use std::process::{Command, Stdio};

use landfall_core::adapter::Decision;
use landfall_core::{Message, MessageId, OutboxQueue, OutboxView, Schema};
use landfall_postgres::Postgres;
use landfall_testkit::servers::private_postgres;

use crate::stage::{LONG, lease_all, message, open, publish_everything, settlement};

/// Commits `count` empty transactions.
async fn spend_transactions(database: &Postgres, count: u32) {
    let spend = format!("DO $$ BEGIN FOR n IN 1..{count} LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$");
    sqlx::raw_sql(sqlx::AssertSqlSafe(spend)).execute(database.pool()).await.unwrap();
}

fn copy(from: &str, to: &str) {
    let mut dump = Command::new("pg_dump").arg(from).stdout(Stdio::piped()).spawn().unwrap();
    let restored = Command::new("psql")
        .args(["--quiet", "--set", "ON_ERROR_STOP=1", "--output", "/dev/null", to])
        .stdin(dump.stdout.take().unwrap())
        .status()
        .unwrap();
    assert!(dump.wait().unwrap().success() && restored.success());
}

async fn restored_elsewhere(spent_here: u32, spent_there: u32, asks: bool) {
    let (Some(here), Some(there)) = (private_postgres().await, private_postgres().await) else { return };
    let (from, to) = (here.fresh_database().await.unwrap(), there.fresh_database().await.unwrap());
    let database = open(&from).await;
    database.migrate().await.unwrap();
    spend_transactions(&database, spent_here).await;
    let leases = lease_all(&database, "one", LONG).await;
    let messages: Vec<Message> = (1..=8).map(|n| message(&format!("k{}", n % 4), n)).collect();
    database.append(&messages[..6]).await.unwrap();
    let entries = database.next(&leases, 10).await.unwrap();
    let retry = Decision::Retry { after: LONG, error: "busy".into() };
    let decisions = [(0, Decision::Published), (1, Decision::Published), (3, retry)];
    let settlements: Vec<_> = decisions.map(|(at, decision): (usize, _)| settlement(&entries[at], decision)).into();
    assert_eq!(database.settle(&leases, &settlements).await.unwrap().len(), 3);
    database.append(&messages[6..]).await.unwrap();
    database.pool().close().await;

    let elsewhere = open(&to).await;
    spend_transactions(&elsewhere, spent_there).await;
    copy(&from, &to);
    if !asks {
        // As without the privilege to read the cluster's identifier.
        let unknown = "UPDATE landfall_outbox_cluster SET system_identifier = NULL";
        sqlx::query(unknown).execute(elsewhere.pool()).await.unwrap();
    }
    // Written there before any relay reads.
    let early: Vec<Message> = (1..=3).map(|n| message("new", n)).collect();
    elsewhere.append(&early).await.unwrap();
    sqlx::query("UPDATE landfall_lease SET holder = NULL").execute(elsewhere.pool()).await.unwrap();
    let leases = lease_all(&elsewhere, "two", LONG).await;
    let mut sent = publish_everything(&elsewhere, &leases).await;
    sent.extend(publish_everything(&elsewhere, &leases).await);
    // The fourth waits, and so does the eighth, which has the same key.
    let old = [2, 4, 5, 6].map(|n: usize| messages[n].id);
    let expected: Vec<MessageId> = old.into_iter().chain(early.iter().map(|message| message.id)).collect();
    assert_eq!(sent, expected);
    let late = message("new", 4);
    elsewhere.append(std::slice::from_ref(&late)).await.unwrap();
    assert_eq!(publish_everything(&elsewhere, &leases).await, [late.id]);
    let stats = elsewhere.stats().await.unwrap();
    assert_eq!((stats.pending, stats.retrying, stats.published), (1, 1, 2 + 7 + 1));
}

#[tokio::test]
async fn restore_into_a_cluster_with_fewer_transactions() {
    restored_elsewhere(5000, 0, true).await;
}

#[tokio::test]
async fn restore_into_a_cluster_with_more_transactions() {
    restored_elsewhere(0, 5000, true).await;
}

#[tokio::test]
async fn restore_into_a_cluster_without_a_readable_identifier() {
    restored_elsewhere(5000, 0, false).await;
    restored_elsewhere(0, 5000, false).await;
}
