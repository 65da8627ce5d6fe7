//! Reading the outbox: all rows, in key order, for any batch size.

use std::collections::{BTreeMap, BTreeSet};

use landfall_core::adapter::{Decision, Shard};
use landfall_core::{Database, OutboxFilter, OutboxQueue, OutboxState, OutboxView, OutboxWriter};

use super::harness::settlement;
use super::{DatabaseFixture, Harness};
use crate::conformance::sample::{ids, keyed, keyless, series, sorted};

pub async fn reading_the_outbox_changes_nothing<F: DatabaseFixture>(harness: Harness<F>) {
    harness.enqueue(&series("a", 3)).await;
    let leases = harness.lease_all("one").await;
    let first: Vec<_> = harness.due(&leases).await.iter().map(|entry| (entry.row, entry.attempts)).collect();
    let second: Vec<_> = harness.due(&leases).await.iter().map(|entry| (entry.row, entry.attempts)).collect();
    assert_eq!(first.len(), 3);
    assert_eq!(first, second);
}

pub async fn key_order_is_kept_across_batches<F: DatabaseFixture>(harness: Harness<F>) {
    let keys = ["a", "b", "c", "d", "e"];
    for block in 0..10 {
        // Each transaction carries two messages of each key, interleaved.
        let block: Vec<_> = [1, 2].iter().flat_map(|n| keys.map(|key| keyed(key, 2 * block + n))).collect();
        harness.enqueue(&block).await;
    }
    let leases = harness.lease_all("one").await;
    let mut seen: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    loop {
        let batch = harness.database.next(&leases, 7).await.unwrap();
        assert!(batch.len() <= 7, "the batch exceeds the limit");
        if batch.is_empty() {
            break;
        }
        let settlements: Vec<_> = batch.iter().map(|entry| settlement(entry, Decision::Published)).collect();
        assert_eq!(harness.database.settle(&leases, &settlements).await.unwrap().len(), batch.len());
        for message in batch.into_iter().map(|entry| entry.message.unwrap()) {
            seen.entry(message.key.unwrap().to_string()).or_default().push(message.sequence.unwrap());
        }
    }
    let expected: Vec<i64> = (1..=20).collect();
    assert_eq!(seen.keys().map(String::as_str).collect::<Vec<_>>(), keys);
    for (key, sequences) in seen {
        assert_eq!(sequences, expected, "key {key}");
    }
}

pub async fn published_rows_are_removed_and_counted<F: DatabaseFixture>(harness: Harness<F>) {
    let messages = [keyed("a", 1), keyed("b", 1), keyless()];
    harness.enqueue(&messages).await;
    let leases = harness.lease_all("one").await;
    let due = harness.due(&leases).await;
    let settlements: Vec<_> = due[..2].iter().map(|entry| settlement(entry, Decision::Published)).collect();
    let settled: BTreeSet<_> = harness.database.settle(&leases, &settlements).await.unwrap().into_iter().collect();
    assert_eq!(settled, due[..2].iter().map(|entry| entry.row).collect());

    assert_eq!(harness.due_ids(&leases).await, [due[2].message_id]);
    let stats = harness.database.stats().await.unwrap();
    assert_eq!((stats.pending, stats.retrying, stats.parked, stats.published), (1, 0, 0, 2));

    harness.database.settle(&leases, &[settlement(&due[2], Decision::Published)]).await.unwrap();
    let stats = harness.database.stats().await.unwrap();
    assert_eq!((stats.pending, stats.published), (0, 3));
    assert_eq!(stats.oldest_seconds, 0.0, "an empty outbox has an age");
    assert!(harness.database.list(&OutboxFilter::default(), 10).await.unwrap().is_empty());
}

pub async fn each_row_and_each_key_is_in_exactly_one_shard<F: DatabaseFixture>(harness: Harness<F>) {
    let mut messages: Vec<_> = (0..40).flat_map(|n| series(&format!("key-{n}"), 2)).collect();
    messages.extend((0..40).map(|_| keyless()));
    harness.enqueue(&messages).await;
    let leases = harness.lease_all("one").await;

    let mut seen = Vec::new();
    let mut shard_of_key = BTreeMap::new();
    for lease in &leases {
        for entry in harness.due(std::slice::from_ref(lease)).await {
            assert_eq!(Shard::from_lease(&lease.name), Some(entry.shard), "a row of another shard");
            if let Some(key) = entry.message.unwrap().key {
                let first = *shard_of_key.entry(key.to_string()).or_insert(entry.shard);
                assert_eq!(first, entry.shard, "key {key} is in two shards");
            }
            seen.push(entry.message_id);
        }
    }
    assert_eq!(sorted(seen), sorted(ids(&messages)));
    let shards: BTreeSet<_> = shard_of_key.values().collect();
    assert!(leases.len() == 1 || shards.len() > 1, "40 keys are all in one of {} shards", leases.len());
}

pub async fn nothing_is_read_without_a_lease<F: DatabaseFixture>(harness: Harness<F>) {
    harness.enqueue(&[keyed("a", 1), keyless()]).await;
    assert!(harness.due(&[]).await.is_empty());
}

/// Rows get their id on insert and become visible on commit. A reader that only remembers the highest id would skip the
/// row of the first transaction.
pub async fn late_commit_is_not_skipped<F: DatabaseFixture>(harness: Harness<F>) {
    let (late, early) = (keyed("a", 1), keyed("a", 2));
    let mut open = harness.database.begin().await.unwrap();
    harness.database.enqueue(&mut open, std::slice::from_ref(&late)).await.unwrap();
    harness.enqueue(std::slice::from_ref(&early)).await;

    let leases = harness.lease_all("one").await;
    assert_eq!(harness.due_ids(&leases).await, [early.id], "an uncommitted row is visible or blocks another");
    harness.settle(&leases, &early, Decision::Published).await;

    harness.database.commit(open).await.unwrap();
    assert_eq!(harness.due_ids(&leases).await, [late.id]);
}

pub async fn outbox_pages_return_each_row_once<F: DatabaseFixture>(harness: Harness<F>) {
    let messages = [keyed("a", 1), keyless(), keyed("a", 2), keyed("b", 1), keyless()];
    harness.enqueue(&messages).await;
    let mut rows = Vec::new();
    loop {
        let after = rows.last().map(|row: &landfall_core::OutboxRow| row.row);
        let page = harness.database.list(&OutboxFilter { after, ..OutboxFilter::default() }, 2).await.unwrap();
        assert!(page.len() <= 2);
        if page.is_empty() {
            break;
        }
        rows.extend(page);
    }
    assert_eq!(rows.iter().map(|row| row.message_id).collect::<Vec<_>>(), ids(&messages));
    for (row, message) in rows.iter().zip(&messages) {
        assert_eq!((&row.topic, &row.key), (&message.topic, &message.key));
        assert_eq!((row.state, row.attempts), (OutboxState::Pending, 0));
        assert_eq!((row.next_attempt, row.last_error.as_deref()), (None, None));
        assert_eq!((row.created_at, row.payload_bytes), (message.time, message.payload.len() as u64));
    }
}
