//! Wake-ups between processes, and their background tasks.

use std::time::Duration;

use landfall_core::{OutboxQueue, OutboxWriter};
use landfall_postgres::Postgres;
use landfall_testkit::eventually;

use crate::stage::{LONG, SOON, another, migrated};

/// Returns the server processes that listen on this database.
async fn listeners(observer: &Postgres) -> Vec<i32> {
    sqlx::query_scalar(
        "SELECT pid FROM pg_stat_activity
         WHERE datname = current_database() AND query LIKE 'LISTEN%' AND state = 'idle'",
    )
    .fetch_all(observer.pool())
    .await
    .unwrap()
}

/// Starts the listener of `database`, and consumes the wake-ups that its start causes.
async fn listening(database: &Postgres, observer: &Postgres) {
    eventually(SOON, "the instance listens", async || {
        database.wait(Duration::from_millis(20)).await;
        listeners(observer).await.len() == 1
    })
    .await;
    settled(database).await;
}

/// Waits until no wake-up is stored.
async fn settled(database: &Postgres) {
    eventually(SOON, "earlier wake-ups are used up", async || {
        tokio::time::timeout(Duration::from_millis(200), database.wait(LONG)).await.is_err()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wake_in_another_instance_ends_the_wait() {
    let Some(database) = migrated().await else { return };
    let elsewhere = another(&database).await;
    listening(&database, &elsewhere).await;
    elsewhere.wake();
    tokio::time::timeout(SOON, database.wait(LONG)).await.expect("the notification arrives");
}

#[tokio::test(flavor = "multi_thread")]
async fn notify_from_sql_ends_the_wait() {
    let Some(database) = migrated().await else { return };
    let observer = another(&database).await;
    listening(&database, &observer).await;
    sqlx::query("NOTIFY landfall_outbox").execute(observer.pool()).await.unwrap();
    tokio::time::timeout(SOON, database.wait(LONG)).await.expect("the notification arrives");
}

#[tokio::test(flavor = "multi_thread")]
async fn instance_ignores_its_own_notification() {
    let Some(database) = migrated().await else { return };
    let elsewhere = another(&database).await;
    listening(&database, &elsewhere).await;
    let mut foreign = sqlx::postgres::PgListener::connect_with(elsewhere.pool()).await.unwrap();
    foreign.listen("landfall_outbox").await.unwrap();
    database.wake();
    tokio::time::timeout(SOON, foreign.recv()).await.expect("other listeners are notified").unwrap();
    settled(&database).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_waiting_clone_is_woken() {
    let Some(database) = migrated().await else { return };
    let observer = another(&database).await;
    listening(&database, &observer).await;
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let clone = database.clone();
        waiting.spawn(async move { clone.wait(LONG).await });
    }
    // A wake-up before a clone waits is stored for only one of them, so it is repeated.
    eventually(SOON, "all of them are woken", async || {
        database.wake();
        while waiting.try_join_next().is_some() {}
        waiting.is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn listener_reconnects_after_a_lost_connection() {
    let Some(database) = migrated().await else { return };
    let elsewhere = another(&database).await;
    listening(&database, &elsewhere).await;
    let lost = listeners(&elsewhere).await[0];
    sqlx::query("SELECT pg_terminate_backend($1, 20000)").bind(lost).execute(elsewhere.pool()).await.unwrap();
    eventually(SOON, "it listens again", async || {
        let found = listeners(&elsewhere).await;
        found.len() == 1 && found[0] != lost
    })
    .await;
    settled(&database).await;
    elsewhere.wake();
    tokio::time::timeout(SOON, database.wait(LONG)).await.expect("the notification arrives");
}

#[tokio::test(flavor = "multi_thread")]
async fn listener_ends_with_the_last_clone() {
    let Some(observer) = migrated().await else { return };
    let database = another(&observer).await;
    listening(&database, &observer).await;
    let clone = database.clone();
    drop(database);
    assert_eq!(listeners(&observer).await.len(), 1, "one clone is left");
    drop(clone);
    eventually(SOON, "the listener has ended", async || listeners(&observer).await.is_empty()).await;
}
