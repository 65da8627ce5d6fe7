//! Ids are assigned in one order and committed in another: nothing is lost, and nothing waits.

use landfall_core::adapter::Decision;
use landfall_core::{Database, Message, OutboxFilter, OutboxQueue, OutboxView, OutboxWriter};

use super::harness::{Harness, settlement};
use super::{DatabaseFixture, FullDatabase};
use crate::VIOLATION;
use crate::conformance::sample::keyed;

pub async fn lower_id_that_commits_later_is_still_published<F: DatabaseFixture>(harness: Harness<F>) {
    let leases = harness.lease_all("one").await;
    let (late, early) = (keyed("a", 2), keyed("a", 1));
    let mut first = harness.database.begin().await.unwrap();
    harness.database.enqueue(&mut first, std::slice::from_ref(&late)).await.unwrap();
    let mut second = harness.database.begin().await.unwrap();
    harness.database.enqueue(&mut second, std::slice::from_ref(&early)).await.unwrap();
    assert!(harness.due_ids(&leases).await.is_empty());

    let rows = async || {
        let rows = harness.database.list(&OutboxFilter::default(), 10).await.unwrap();
        rows.iter().map(|row| row.row).collect::<Vec<_>>()
    };
    harness.database.commit(second).await.unwrap();
    let higher = rows().await;
    assert_eq!(harness.due_ids(&leases).await, [early.id]);
    harness.settle(&leases, &early, Decision::Published).await;
    harness.database.commit(first).await.unwrap();
    let lower = rows().await;
    assert!(lower.len() == 1 && higher.len() == 1 && lower < higher, "the higher id was not committed first");
    assert_eq!(harness.due_ids(&leases).await, [late.id]);
    harness.settle(&leases, &late, Decision::Published).await;
    assert_eq!(harness.database.stats().await.unwrap().published, 2);
}

/// Several writers commit or roll back in any order while a relay reads. Each committed message is read once, and each
/// writer's key in commit order.
pub async fn concurrent_writers_lose_and_reorder_nothing<F: DatabaseFixture>(harness: Harness<F>) {
    const WRITERS: i64 = 4;
    const ROUNDS: i64 = 60;
    let leases = harness.lease_all("one").await;
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        writers.spawn(write(harness.database.clone(), writer, ROUNDS));
    }
    let mut published: Vec<Message> = Vec::new();
    loop {
        let is_last = writers.is_empty();
        let entries = harness.database.next(&leases, 7).await.unwrap();
        let settlements: Vec<_> = entries.iter().map(|entry| settlement(entry, Decision::Published)).collect();
        assert_eq!(harness.database.settle(&leases, &settlements).await.unwrap().len(), entries.len());
        if is_last && entries.is_empty() {
            break;
        }
        published.extend(entries.into_iter().map(|entry| entry.message.unwrap()));
        while let Some(ended) = writers.try_join_next() {
            ended.unwrap();
        }
    }
    let committed: Vec<i64> = (1..=ROUNDS).filter(|round| round % 5 != 0).collect();
    for writer in 0..WRITERS {
        let key = format!("key-{writer}");
        let of_key = published.iter().filter(|message| message.key.as_ref().is_some_and(|found| found.as_str() == key));
        assert_eq!(of_key.filter_map(|message| message.sequence).collect::<Vec<_>>(), committed, "{VIOLATION} {key}");
    }
    assert_eq!(published.len(), 2 * committed.len() * WRITERS as usize, "{VIOLATION} lost or doubled messages");
}

async fn write<D: FullDatabase>(database: D, writer: i64, rounds: i64) {
    for round in 1..=rounds {
        let mut transaction = database.begin().await.unwrap();
        let messages = [keyed(&format!("key-{writer}"), round), keyed("shared", round)];
        database.enqueue(&mut transaction, &messages).await.unwrap();
        tokio::task::yield_now().await;
        if round % 5 == 0 {
            drop(transaction);
        } else {
            database.commit(transaction).await.unwrap();
        }
    }
}
