//! Transactions that stay open keep nobody waiting, old row versions or not. That late commits are not lost is in the
//! suite.

use landfall_core::{Database, OutboxQueue, OutboxWriter};

use crate::stage::{LONG, lease_all, message, migrated, publish_everything};

#[tokio::test]
async fn a_long_open_transaction_stalls_nobody() {
    let Some(database) = migrated().await else { return };
    let leases = lease_all(&database, "one", LONG).await;
    // One that wrote and one that only looked: both keep old row versions alive.
    let mut writer = database.begin().await.unwrap();
    let unfinished = message("a", 0);
    database.enqueue(&mut writer, std::slice::from_ref(&unfinished)).await.unwrap();
    let mut reader = database.pool().begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ").await.unwrap();
    sqlx::query("SELECT count(*) FROM landfall_outbox").execute(&mut *reader).await.unwrap();

    for round in 1..=20 {
        let messages = [message("a", round), message("b", round)];
        database.append(&messages).await.unwrap();
        let expected: Vec<_> = messages.iter().map(|message| message.id).collect();
        assert_eq!(publish_everything(&database, &leases).await, expected);
    }
    database.commit(writer).await.unwrap();
    assert_eq!(publish_everything(&database, &leases).await, [unfinished.id]);
    drop(reader);
}
