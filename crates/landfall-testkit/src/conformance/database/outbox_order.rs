//! What the relay reads: everything, in order per key, however the batches fall.

use std::collections::{BTreeMap, BTreeSet};

use landfall_core::{Database, Decision, OutboxFilter, OutboxQueue, OutboxState, OutboxView, OutboxWriter, Shard};

use super::stage::settlement;
use super::{DatabaseFixture, Stage};
use crate::conformance::sample::{ids, keyed, keyless, series, sorted};

pub async fn reading_changes_nothing<F: DatabaseFixture>(stage: Stage<F>) {
    stage.enqueue(&series("a", 3)).await;
    let leases = stage.lease_all("one").await;
    let first: Vec<_> = stage.due(&leases).await.iter().map(|entry| (entry.row, entry.attempts)).collect();
    let second: Vec<_> = stage.due(&leases).await.iter().map(|entry| (entry.row, entry.attempts)).collect();
    assert_eq!(first.len(), 3);
    assert_eq!(first, second);
}

pub async fn the_order_of_a_key_is_kept_across_batches<F: DatabaseFixture>(stage: Stage<F>) {
    let keys = ["a", "b", "c", "d", "e"];
    for block in 0..10 {
        // Each transaction carries two messages of each key, interleaved.
        let block: Vec<_> = [1, 2].iter().flat_map(|n| keys.map(|key| keyed(key, 2 * block + n))).collect();
        stage.enqueue(&block).await;
    }
    let leases = stage.lease_all("one").await;
    let mut seen: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    loop {
        let batch = stage.database.next(&leases, 7).await.unwrap();
        assert!(batch.len() <= 7, "a batch is at most as large as asked for");
        if batch.is_empty() {
            break;
        }
        let settlements: Vec<_> = batch.iter().map(|entry| settlement(entry, Decision::Published)).collect();
        assert_eq!(stage.database.settle(&leases, &settlements).await.unwrap().len(), batch.len());
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

pub async fn settled_rows_are_gone_and_counted<F: DatabaseFixture>(stage: Stage<F>) {
    let messages = [keyed("a", 1), keyed("b", 1), keyless()];
    stage.enqueue(&messages).await;
    let leases = stage.lease_all("one").await;
    let due = stage.due(&leases).await;
    let settlements: Vec<_> = due[..2].iter().map(|entry| settlement(entry, Decision::Published)).collect();
    let settled: BTreeSet<_> = stage.database.settle(&leases, &settlements).await.unwrap().into_iter().collect();
    assert_eq!(settled, due[..2].iter().map(|entry| entry.row).collect());

    assert_eq!(stage.due_ids(&leases).await, [due[2].message_id]);
    let stats = stage.database.stats().await.unwrap();
    assert_eq!((stats.pending, stats.retrying, stats.parked, stats.published), (1, 0, 0, 2));

    stage.database.settle(&leases, &[settlement(&due[2], Decision::Published)]).await.unwrap();
    let stats = stage.database.stats().await.unwrap();
    assert_eq!((stats.pending, stats.published), (0, 3));
    assert_eq!(stats.oldest_seconds, 0.0, "nothing waits");
    assert!(stage.database.list(&OutboxFilter::default(), 10).await.unwrap().is_empty());
}

pub async fn every_row_is_in_exactly_one_shard_and_a_key_in_one<F: DatabaseFixture>(stage: Stage<F>) {
    let mut messages: Vec<_> = (0..40).flat_map(|n| series(&format!("key-{n}"), 2)).collect();
    messages.extend((0..40).map(|_| keyless()));
    stage.enqueue(&messages).await;
    let leases = stage.lease_all("one").await;

    let mut seen = Vec::new();
    let mut shard_of_key = BTreeMap::new();
    for lease in &leases {
        for entry in stage.due(std::slice::from_ref(lease)).await {
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

pub async fn without_a_lease_there_is_nothing_to_read<F: DatabaseFixture>(stage: Stage<F>) {
    stage.enqueue(&[keyed("a", 1), keyless()]).await;
    assert!(stage.due(&[]).await.is_empty());
}

/// Rows get their place when they are inserted and become visible when their transaction commits. A reader that
/// remembers how far it came would skip the first transaction's row.
pub async fn a_transaction_that_commits_late_is_not_lost<F: DatabaseFixture>(stage: Stage<F>) {
    if !F::capabilities().concurrent_writers {
        return;
    }
    let (late, early) = (keyed("a", 1), keyed("a", 2));
    let mut open = stage.database.begin().await.unwrap();
    stage.database.enqueue(&mut open, std::slice::from_ref(&late)).await.unwrap();
    stage.enqueue(std::slice::from_ref(&early)).await;

    let leases = stage.lease_all("one").await;
    assert_eq!(stage.due_ids(&leases).await, [early.id], "what is not committed is not seen and holds nobody");
    stage.settle(&leases, &early, Decision::Published).await;

    stage.database.commit(open).await.unwrap();
    assert_eq!(stage.due_ids(&leases).await, [late.id]);
}

pub async fn the_list_pages_through_everything_once<F: DatabaseFixture>(stage: Stage<F>) {
    let messages = [keyed("a", 1), keyless(), keyed("a", 2), keyed("b", 1), keyless()];
    stage.enqueue(&messages).await;
    let mut rows = Vec::new();
    loop {
        let after = rows.last().map(|row: &landfall_core::OutboxRow| row.row);
        let page = stage.database.list(&OutboxFilter { after, ..OutboxFilter::default() }, 2).await.unwrap();
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
