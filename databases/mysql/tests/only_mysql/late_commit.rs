//! Ids are given out in one order and committed in another: nothing is lost, nobody waits.

use landfall_core::{Database, OutboxFilter, OutboxQueue, OutboxView, OutboxWriter};

use crate::stage::{LONG, due, lease_all, message, migrated, publish_everything};

#[tokio::test]
async fn a_row_that_commits_after_its_successor_is_published_after_it() {
    let Some(database) = migrated().await else { return };
    let leases = lease_all(&database, "one", LONG).await;
    let (early, late) = (message("a", 1), message("a", 2));
    let mut first = database.begin().await.unwrap();
    database.enqueue(&mut first, std::slice::from_ref(&late)).await.unwrap();
    let mut second = database.begin().await.unwrap();
    database.enqueue(&mut second, std::slice::from_ref(&early)).await.unwrap();

    assert!(due(&database, &leases).await.is_empty());
    database.commit(second).await.unwrap();
    let rows = database.list(&OutboxFilter::default(), 10).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.row).collect::<Vec<_>>(), [2], "the higher id is committed first");
    assert_eq!(publish_everything(&database, &leases).await, [early.id]);
    database.commit(first).await.unwrap();
    let rows = database.list(&OutboxFilter::default(), 10).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.row).collect::<Vec<_>>(), [1]);
    assert_eq!(publish_everything(&database, &leases).await, [late.id]);
    assert_eq!(database.stats().await.unwrap().published, 2);
}

#[tokio::test]
async fn a_long_open_transaction_stalls_nobody() {
    let Some(database) = migrated().await else { return };
    let leases = lease_all(&database, "one", LONG).await;
    // One that wrote and one that only looked: both keep old row versions alive.
    let mut writer = database.begin().await.unwrap();
    let unfinished = message("a", 0);
    database.enqueue(&mut writer, std::slice::from_ref(&unfinished)).await.unwrap();
    let mut reader = database.pool().begin_with("START TRANSACTION WITH CONSISTENT SNAPSHOT").await.unwrap();
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

/// Eight writers commit in whatever order they like, some roll back, while a relay drains: each message comes once,
/// and those of one writer's key in the order it committed them.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_writers_lose_nothing_and_reorder_nothing() {
    const WRITERS: i64 = 4;
    const ROUNDS: i64 = 60;
    let Some(database) = migrated().await else { return };
    let leases = lease_all(&database, "one", LONG).await;
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let database = database.clone();
        writers.spawn(async move {
            for round in 1..=ROUNDS {
                let mut transaction = database.begin().await.unwrap();
                let messages = [message(&format!("k{writer}"), round), message("shared", round)];
                database.enqueue(&mut transaction, &messages).await.unwrap();
                tokio::task::yield_now().await;
                if round % 5 == 0 {
                    drop(transaction);
                } else {
                    database.commit(transaction).await.unwrap();
                }
            }
        });
    }
    let relay = async {
        let mut published = Vec::new();
        loop {
            let is_last = writers.is_empty();
            let entries = database.next(&leases, 7).await.unwrap();
            let settlements: Vec<_> = entries
                .iter()
                .map(|entry| crate::stage::settlement(entry, landfall_core::Decision::Published))
                .collect();
            assert_eq!(database.settle(&leases, &settlements).await.unwrap().len(), entries.len());
            if is_last && entries.is_empty() {
                return published;
            }
            published.extend(entries.into_iter().map(|entry| entry.message.unwrap()));
            while let Some(ended) = writers.try_join_next() {
                ended.unwrap();
            }
        }
    };
    let published = relay.await;

    let committed: Vec<i64> = (1..=ROUNDS).filter(|round| round % 5 != 0).collect();
    for writer in 0..WRITERS {
        let key = format!("k{writer}");
        let of_key = published.iter().filter(|message| message.key.as_ref().is_some_and(|found| found.as_str() == key));
        assert_eq!(of_key.filter_map(|message| message.sequence).collect::<Vec<_>>(), committed, "{key}");
    }
    assert_eq!(published.len(), 2 * committed.len() * WRITERS as usize);
}
