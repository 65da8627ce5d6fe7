//! Competing relays: each message goes to one of them, and a claimed row does not block the others.

use landfall_core::adapter::{Claim, Decision, Settlement};
use landfall_core::{
    CompetingQueue, DeadLetterFilter, DeadLetters, ErrorCode, OutboxFilter, OutboxQueue, OutboxView, RowId,
};
use landfall_mysql::MySql;
use landfall_testkit::eventually;

use crate::stage::{LONG, SOON, another, message, migrated, settlement};

async fn claim(database: &MySql, limit: usize) -> (Box<dyn Claim>, Vec<Settlement>) {
    let mut claim = database.claim(limit).await.unwrap();
    let entries = claim.take_entries();
    assert!(claim.take_entries().is_empty());
    let settlements = entries.iter().map(|entry| settlement(entry, Decision::Published)).collect();
    (claim, settlements)
}

fn rows(settlements: &[Settlement]) -> Vec<RowId> {
    settlements.iter().map(|settlement| settlement.row).collect()
}

#[tokio::test]
async fn claims_share_no_row_and_a_dropped_claim_frees_its_rows() {
    let Some(database) = migrated().await else { return };
    database.append(&(1..=6).map(|sequence| message("a", sequence)).collect::<Vec<_>>()).await.unwrap();
    let (first, of_first) = claim(&database, 2).await;
    let (second, of_second) = claim(&another(&database).await, 10).await;
    assert_eq!((rows(&of_first), rows(&of_second)), (vec![1, 2], vec![3, 4, 5, 6]), "oldest first, whatever the key");
    let (none, nothing) = claim(&database, 10).await;
    assert!(nothing.is_empty());
    drop(none);

    drop(first);
    second.settle(&of_second[..3]).await.unwrap();
    // The driver rolls back some time after the drop.
    eventually(SOON, "unsettled rows are free again", async || {
        let (_, free) = claim(&database, 10).await;
        rows(&free) == [1, 2, 6]
    })
    .await;
    let stats = database.stats().await.unwrap();
    assert_eq!((stats.pending, stats.published), (3, 3));
}

#[tokio::test]
async fn claim_applies_every_kind_of_decision() {
    let Some(database) = migrated().await else { return };
    database.append(&[message("a", 1), message("b", 1), message("c", 1), message("d", 1)]).await.unwrap();
    let (claimed, mut settlements) = claim(&database, 10).await;
    settlements[1].decision = Decision::Retry { after: LONG, error: "later".into() };
    settlements[2].decision =
        Decision::Park { code: ErrorCode::TOO_LARGE, error: "too large".into(), holds_key: false };
    settlements.truncate(3);
    // A row outside the claim does not change.
    settlements.push(Settlement { row: 1000, shard: settlements[0].shard, decision: Decision::Published });
    claimed.settle(&settlements).await.unwrap();
    let stats = database.stats().await.unwrap();
    assert_eq!((stats.pending, stats.retrying, stats.parked, stats.published), (1, 1, 1, 1));
    assert_eq!(database.list(&OutboxFilter::default(), 10).await.unwrap().len(), 2);
    assert_eq!(database.find(&DeadLetterFilter::default(), 10).await.unwrap().len(), 1);
    let (_, due) = claim(&database, 10).await;
    assert_eq!(rows(&due), [4], "what was put off is not due");
}

#[tokio::test(flavor = "multi_thread")]
async fn competing_relays_claim_every_message_once() {
    const MESSAGES: i64 = 400;
    let Some(database) = migrated().await else { return };
    database.append(&(1..=MESSAGES).map(|n| message(&format!("k{}", n % 9), n)).collect::<Vec<_>>()).await.unwrap();
    let mut relays = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let database = another(&database).await;
        relays.spawn(async move {
            let mut taken = Vec::new();
            loop {
                let (claimed, settlements) = claim(&database, 7).await;
                if settlements.is_empty() {
                    return taken;
                }
                claimed.settle(&settlements).await.unwrap();
                taken.extend(rows(&settlements));
            }
        });
    }
    let mut taken = tokio::time::timeout(3 * SOON, relays.join_all()).await.unwrap().concat();
    taken.sort_unstable();
    assert_eq!(taken, (1..=MESSAGES).collect::<Vec<_>>());
    assert_eq!(database.stats().await.unwrap().published, MESSAGES as u64);
}
