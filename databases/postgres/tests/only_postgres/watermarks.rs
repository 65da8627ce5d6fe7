//! A relay reads new rows above the last watermark that is older than their transactions. The rows of a transaction are
//! found when it ends, however long it takes.

use std::collections::{BTreeMap, HashSet};

use landfall_core::{Database, MessageId, OutboxQueue, OutboxWriter};
use landfall_postgres::Postgres;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinSet;

use crate::stage::{LONG, lease_all, message, migrated, publish_everything};

/// Enough rows for several watermarks.
const ROUND: i64 = 700;

#[tokio::test]
async fn rows_of_transactions_of_any_age_are_found() {
    let Some(database) = migrated().await else { return };
    let leases = lease_all(&database, "one", LONG).await;
    // Each gets its transaction id and a row id before the next round, and writes once more before it ends.
    let mut open = Vec::new();
    for round in 0..4 {
        let mut transaction = database.begin().await.unwrap();
        let late = message(&format!("late {round}"), 0);
        database.enqueue(&mut transaction, std::slice::from_ref(&late)).await.unwrap();
        open.push((round, transaction, late));
        let batch: Vec<_> = (0..ROUND).map(|n| message("a", n)).collect();
        database.append(&batch).await.unwrap();
        assert_eq!(publish_everything(&database, &leases).await.len(), batch.len());
    }
    // The oldest ends neither first nor last.
    for at in [2, 0, 1, 0] {
        let (round, mut transaction, late) = open.remove(at);
        let last = message(&format!("late {round}"), 1);
        database.enqueue(&mut transaction, std::slice::from_ref(&last)).await.unwrap();
        database.commit(transaction).await.unwrap();
        assert_eq!(publish_everything(&database, &leases).await, [late.id, last.id]);
    }
}

#[tokio::test]
async fn rows_are_found_after_the_id_sequence_is_set_back() {
    let Some(database) = migrated().await else { return };
    let leases = lease_all(&database, "one", LONG).await;
    sqlx::query("SELECT setval('landfall_outbox_id_seq', 100000)").execute(database.pool()).await.unwrap();
    database.append(&[message("a", 1)]).await.unwrap();
    assert_eq!(publish_everything(&database, &leases).await.len(), 1);
    assert!(publish_everything(&database, &leases).await.is_empty());
    sqlx::query("SELECT setval('landfall_outbox_id_seq', 10)").execute(database.pool()).await.unwrap();
    let lower = message("a", 2);
    database.append(std::slice::from_ref(&lower)).await.unwrap();
    let mut sent = publish_everything(&database, &leases).await;
    sent.extend(publish_everything(&database, &leases).await);
    assert_eq!(sent, [lower.id]);
}

/// Each writer has its own keys, so that the order of its commits is the order of each key.
async fn write(database: Postgres, writer: u64) -> Vec<(String, MessageId)> {
    let mut random = StdRng::seed_from_u64(writer);
    let mut written = Vec::new();
    for _ in 0..60 {
        let mut transaction = database.begin().await.unwrap();
        let mut mine = Vec::new();
        for _ in 0..random.random_range(1..=4) {
            let key = format!("{writer}/{}", random.random_range(0..3));
            let messages: Vec<_> = (0..random.random_range(1..12)).map(|n| message(&key, n)).collect();
            database.enqueue(&mut transaction, &messages).await.unwrap();
            mine.extend(messages.into_iter().map(|message| (key.clone(), message.id)));
        }
        if random.random_bool(0.2) {
            transaction.rollback().await.unwrap();
        } else {
            database.commit(transaction).await.unwrap();
            written.append(&mut mine);
        }
    }
    written
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_writers_are_sent_once_and_in_order() {
    let Some(database) = migrated().await else { return };
    let leases = lease_all(&database, "one", LONG).await;
    let mut writers = JoinSet::new();
    for writer in 0..4 {
        writers.spawn(write(database.clone(), writer));
    }
    let mut sent = Vec::new();
    let mut expected: BTreeMap<String, Vec<MessageId>> = BTreeMap::new();
    while !writers.is_empty() {
        sent.extend(publish_everything(&database, &leases).await);
        while let Some(written) = writers.try_join_next() {
            for (key, id) in written.unwrap() {
                expected.entry(key).or_default().push(id);
            }
        }
    }
    loop {
        let rest = publish_everything(&database, &leases).await;
        if rest.is_empty() {
            break;
        }
        sent.extend(rest);
    }
    let place: BTreeMap<_, _> = sent.iter().enumerate().map(|(at, id)| (*id, at)).collect();
    assert_eq!(sent.iter().collect::<HashSet<_>>().len(), sent.len(), "a message was sent twice");
    assert_eq!(sent.len(), expected.values().map(Vec::len).sum::<usize>());
    for (key, ids) in expected {
        let places: Vec<_> = ids.iter().map(|id| place.get(id).expect("it was sent")).collect();
        assert!(places.is_sorted(), "{key}");
    }
}
