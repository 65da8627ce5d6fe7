//! Lease takeover concurrent with a settlement: both lock the lease's row, and one waits for the other.

use landfall_core::adapter::{Decision, Lease, Settlement, Shard};
use landfall_core::{Database, ErrorCode, Leases, OutboxFilter, OutboxQueue, OutboxView};

use super::DatabaseFixture;
use super::harness::{Harness, LONG, SHORT_WAIT, TIMEOUT, settlement};
use crate::conformance::sample::keyed;

/// Settles under `leases` in another process while a takeover is uncommitted, then commits it or rolls it back. Returns
/// the settled rows.
async fn settle_during_takeover<F: DatabaseFixture>(
    harness: &Harness<F>,
    leases: Vec<Lease>,
    settlements: Vec<Settlement>,
    commits: bool,
) -> Vec<landfall_core::RowId> {
    let second = harness.second().await;
    let mut takeover = harness.database.begin().await.unwrap();
    harness.fixture.steal_leases(&mut takeover).await;
    let mut settling = tokio::spawn(async move { second.settle(&leases, &settlements).await.unwrap() });
    let early = tokio::time::timeout(SHORT_WAIT, &mut settling).await;
    assert!(early.is_err(), "the settlement did not wait for the takeover: {early:?}");
    match commits {
        true => harness.database.commit(takeover).await.unwrap(),
        false => drop(takeover),
    }
    tokio::time::timeout(TIMEOUT, settling).await.expect("the settlement did not continue").unwrap()
}

pub async fn settle_waits_for_an_open_takeover_and_changes_nothing<F: DatabaseFixture>(harness: Harness<F>) {
    harness.enqueue(&[keyed("a", 1)]).await;
    harness.enqueue(&[keyed("b", 1), keyed("c", 1)]).await;
    let decisions = [
        Decision::Published,
        Decision::Retry { after: LONG, error: "late".into() },
        Decision::Park { code: ErrorCode::UNAVAILABLE, error: "late".into(), holds_key: true },
    ];
    let stale = harness.lease_all("one").await;
    let due = harness.due(&stale).await;
    let settlements = due.iter().zip(decisions).map(|(entry, decision)| settlement(entry, decision)).collect();
    let changed = settle_during_takeover(&harness, stale, settlements, true).await;
    assert!(changed.is_empty(), "{changed:?}");
    let rows = harness.database.list(&OutboxFilter::default(), 10).await.unwrap();
    let expected: Vec<_> = due.iter().map(|entry| (entry.row, 0)).collect();
    assert_eq!(rows.iter().map(|row| (row.row, row.attempts)).collect::<Vec<_>>(), expected);
}

pub async fn settle_succeeds_when_the_takeover_rolls_back<F: DatabaseFixture>(harness: Harness<F>) {
    harness.enqueue(&[keyed("a", 1)]).await;
    let leases = harness.lease_all("one").await;
    let entry = harness.due(&leases).await.remove(0);
    let settlements = vec![settlement(&entry, Decision::Published)];
    assert_eq!(settle_during_takeover(&harness, leases, settlements, false).await, [entry.row]);
}

/// Renewing and settling the same leases concurrently must not deadlock.
pub async fn concurrent_renew_and_settle_do_not_deadlock<F: DatabaseFixture>(harness: Harness<F>) {
    let mut leases = harness.lease_all("one").await;
    leases.reverse();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..3 {
        let (database, leases) = (harness.database.clone(), leases.clone());
        tasks.spawn(async move {
            for round in 0..40 {
                if number == 0 {
                    assert_eq!(database.renew(&leases, LONG).await.unwrap().len(), leases.len());
                } else {
                    let nothing = Settlement { row: -1, shard: Shard(0), decision: Decision::Published };
                    let mut rotated = leases.clone();
                    rotated.rotate_left(round % leases.len());
                    assert!(database.settle(&rotated, &[nothing]).await.unwrap().is_empty());
                }
            }
        });
    }
    tokio::time::timeout(3 * TIMEOUT, tasks.join_all()).await.expect("renew and settle deadlocked");
}
