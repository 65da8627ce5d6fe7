//! An idle relay probes the outbox instead of reading it, and misses nothing.

use std::time::Duration;

use landfall_core::adapter::{Decision, Lease};
use landfall_core::{Database, OutboxQueue, OutboxWriter};
use landfall_postgres::Postgres;
use landfall_testkit::eventually;

use crate::stage::{LONG, SOON, another, due, lease_all, message, migrated, publish_everything, settlement};

/// Polls until reads give way to probes.
async fn poll_idle(database: &Postgres, leases: &[Lease]) {
    for _ in 0..5 {
        assert!(database.next(leases, 10).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn probes_notice_new_and_late_commits() {
    let Some(database) = migrated().await else { return };
    let leases = lease_all(&database, "one", LONG).await;
    poll_idle(&database, &leases).await;
    for round in 0..5 {
        let first = message("a", 3 * round);
        database.append(std::slice::from_ref(&first)).await.unwrap();
        assert_eq!(publish_everything(&database, &leases).await, [first.id], "the next poll finds a commit");
        poll_idle(&database, &leases).await;

        // A writer that has its row before the outbox is quiet, and commits afterwards.
        let (late, newer) = (message("b", 3 * round + 1), message("c", 3 * round + 2));
        let mut open = database.begin().await.unwrap();
        database.enqueue(&mut open, std::slice::from_ref(&late)).await.unwrap();
        poll_idle(&database, &leases).await;
        database.append(std::slice::from_ref(&newer)).await.unwrap();
        assert_eq!(publish_everything(&database, &leases).await, [newer.id]);
        poll_idle(&database, &leases).await;
        database.commit(open).await.unwrap();
        assert_eq!(publish_everything(&database, &leases).await, [late.id], "the next poll finds a late commit");
        poll_idle(&database, &leases).await;
    }
}

#[tokio::test]
async fn probes_notice_a_message_that_is_due_again() {
    let Some(database) = migrated().await else { return };
    let leases = lease_all(&database, "one", LONG).await;
    let failing = message("a", 1);
    database.append(std::slice::from_ref(&failing)).await.unwrap();
    let entries = database.next(&leases, 10).await.unwrap();
    let retry = Decision::Retry { after: Duration::from_millis(200), error: "busy".into() };
    database.settle(&leases, &[settlement(&entries[0], retry)]).await.unwrap();
    eventually(SOON, "the message is due", async || due(&database, &leases).await == [failing.id]).await;
}

#[tokio::test]
async fn idle_polls_are_probes() {
    let Some(database) = migrated().await else { return };
    sqlx::raw_sql(
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET track_functions = ''all''', current_database()); END $$",
    )
    .execute(database.pool())
    .await
    .unwrap();
    let relay = another(&database).await;
    let leases = lease_all(&relay, "one", LONG).await;
    relay.append(&[message("a", 1)]).await.unwrap();
    publish_everything(&relay, &leases).await;
    for _ in 0..60 {
        assert!(relay.next(&leases, 10).await.unwrap().is_empty());
    }
    relay.pool().close().await;
    let calls = async || -> Option<i64> {
        sqlx::query_scalar("SELECT calls FROM pg_stat_user_functions WHERE funcname = 'landfall_outbox_next'")
            .fetch_optional(database.pool())
            .await
            .unwrap()
    };
    eventually(SOON, "the statistics have arrived", async || calls().await.is_some()).await;
    let calls = calls().await.unwrap();
    assert!(calls < 60, "{calls} reads for 60 idle polls");
}
