//! Competing relays on PostgreSQL: rotation works with them, and an ordered relay can follow them.

use landfall_core::adapter::Decision;
use landfall_core::{CompetingQueue, OutboxQueue, OutboxView};
use landfall_testkit::eventually;

use crate::stage::{LONG, SOON, lease_all, message, migrated, publish_everything, settlement};

#[tokio::test]
async fn ordered_and_competing_relays_lose_nothing() {
    let Some(database) = migrated().await else { return };
    let leases = lease_all(&database, "one", LONG).await;
    let mut sent = Vec::new();
    for round in 0..8 {
        let messages: Vec<_> = (0..20).map(|n| message(&format!("k{}", n % 5), round * 100 + n)).collect();
        database.append(&messages).await.unwrap();
        if round % 2 == 0 {
            // Half of it in order; the rest stays in the cursor's open window.
            let entries = database.next(&leases, 20).await.unwrap();
            let half = &entries[..entries.len() / 2];
            assert!(!half.is_empty());
            let settlements: Vec<_> = half.iter().map(|entry| settlement(entry, Decision::Published)).collect();
            assert_eq!(database.settle(&leases, &settlements).await.unwrap().len(), half.len());
            sent.extend(half.iter().map(|entry| entry.message_id));
        } else {
            let mut claim = database.claim(30).await.unwrap();
            let entries = claim.take_entries();
            assert!(entries.len() >= 20, "{}", entries.len());
            let retry = Decision::Retry { after: std::time::Duration::ZERO, error: "busy".into() };
            let decide = |at: usize| if at.is_multiple_of(10) { retry.clone() } else { Decision::Published };
            let settlements: Vec<_> =
                entries.iter().enumerate().map(|(at, entry)| settlement(entry, decide(at))).collect();
            claim.settle(&settlements).await.unwrap();
            sent.extend(entries.iter().enumerate().filter(|(at, _)| at % 10 != 0).map(|(_, entry)| entry.message_id));
        }
    }
    eventually(SOON, "everything is sent", async || {
        sent.extend(publish_everything(&database, &leases).await);
        database.stats().await.unwrap().published == 160
    })
    .await;
    assert_eq!(sent.len(), 160);
    sent.sort();
    sent.dedup();
    assert_eq!(sent.len(), 160, "each once");
}

#[tokio::test]
async fn partition_emptied_by_competing_relays_is_truncated() {
    let Some(database) = migrated().await else { return };
    let messages: Vec<_> = (0..10).map(|n| message("a", n)).collect();
    database.append(&messages).await.unwrap();
    let mut claim = database.claim(100).await.unwrap();
    let entries = claim.take_entries();
    sqlx::query("SELECT setval('landfall_outbox_id_seq', 70000)").execute(database.pool()).await.unwrap();
    assert_eq!(database.rotate().await.unwrap(), 0, "the rows are locked");
    let settlements: Vec<_> = entries.iter().map(|entry| settlement(entry, Decision::Published)).collect();
    claim.settle(&settlements).await.unwrap();
    eventually(SOON, "the partition is truncated", async || {
        database.rotate().await.unwrap();
        let bytes: i64 = sqlx::query_scalar("SELECT pg_relation_size('landfall_outbox_0')")
            .fetch_one(database.pool())
            .await
            .unwrap();
        bytes == 0
    })
    .await;
}
