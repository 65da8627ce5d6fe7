//! A takeover while a settlement is in flight: they meet on the lease's row, and one waits for the other.

use landfall_core::{
    Database, Decision, ErrorCode, Lease, Leases, OutboxFilter, OutboxQueue, OutboxView, Settlement, Shard,
};

use super::DatabaseFixture;
use super::stage::{A_MOMENT, LONG, SOON, Stage, settlement};
use crate::conformance::sample::keyed;

/// Settles under `leases` on another instance while a takeover that is not yet committed stands in the way, lets that
/// commit or not, and answers with the rows that were changed.
async fn settle_beside_a_takeover<F: DatabaseFixture>(
    stage: &Stage<F>,
    leases: Vec<Lease>,
    settlements: Vec<Settlement>,
    commits: bool,
) -> Vec<landfall_core::RowId> {
    let second = stage.second().await;
    let mut takeover = stage.database.begin().await.unwrap();
    stage.fixture.take_over_leases(&mut takeover).await;
    let mut settling = tokio::spawn(async move { second.settle(&leases, &settlements).await.unwrap() });
    let early = tokio::time::timeout(A_MOMENT, &mut settling).await;
    assert!(early.is_err(), "it did not wait for the takeover: {early:?}");
    match commits {
        true => stage.database.commit(takeover).await.unwrap(),
        false => drop(takeover),
    }
    tokio::time::timeout(SOON, settling).await.expect("the settlement goes on").unwrap()
}

pub async fn a_settlement_waits_for_a_takeover_in_flight_and_then_changes_nothing<F: DatabaseFixture>(stage: Stage<F>) {
    stage.enqueue(&[keyed("a", 1)]).await;
    stage.enqueue(&[keyed("b", 1), keyed("c", 1)]).await;
    let decisions = [
        Decision::Published,
        Decision::Retry { after: LONG, error: "late".into() },
        Decision::Park { code: ErrorCode::UNAVAILABLE, error: "late".into(), holds_key: true },
    ];
    let stale = stage.lease_all("one").await;
    let due = stage.due(&stale).await;
    let settlements = due.iter().zip(decisions).map(|(entry, decision)| settlement(entry, decision)).collect();
    let changed = settle_beside_a_takeover(&stage, stale, settlements, true).await;
    assert!(changed.is_empty(), "{changed:?}");
    let rows = stage.database.list(&OutboxFilter::default(), 10).await.unwrap();
    let expected: Vec<_> = due.iter().map(|entry| (entry.row, 0)).collect();
    assert_eq!(rows.iter().map(|row| (row.row, row.attempts)).collect::<Vec<_>>(), expected);
}

pub async fn a_settlement_goes_on_when_the_takeover_is_rolled_back<F: DatabaseFixture>(stage: Stage<F>) {
    stage.enqueue(&[keyed("a", 1)]).await;
    let leases = stage.lease_all("one").await;
    let entry = stage.due(&leases).await.remove(0);
    let settlements = vec![settlement(&entry, Decision::Published)];
    assert_eq!(settle_beside_a_takeover(&stage, leases, settlements, false).await, [entry.row]);
}

/// Renewing and settling the same leases at the same time must not wait in a circle.
pub async fn renewing_and_settling_at_once_do_not_block_each_other_for_good<F: DatabaseFixture>(stage: Stage<F>) {
    let mut leases = stage.lease_all("one").await;
    leases.reverse();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..3 {
        let (database, leases) = (stage.database.clone(), leases.clone());
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
    tokio::time::timeout(3 * SOON, tasks.join_all()).await.expect("nobody waits for ever");
}
