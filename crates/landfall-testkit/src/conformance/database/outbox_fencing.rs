//! Settling under a lease: whoever lost it changes nothing more.

use std::time::Duration;

use landfall_core::{
    Decision, ErrorCode, Lease, Leases, OutboxEntry, OutboxFilter, OutboxQueue, OutboxState, OutboxView, Settlement,
};

use super::stage::{A_MOMENT, LONG, SOON, holder, lease_all, settlement};
use super::{DatabaseFixture, Stage};
use crate::conformance::sample::{ids, keyed, keyless, series};
use crate::eventually;

fn every_decision() -> [Decision; 3] {
    [
        Decision::Published,
        Decision::Retry { after: LONG, error: "late".into() },
        Decision::Park { code: ErrorCode::UNAVAILABLE, error: "late".into(), holds_key: true },
    ]
}

/// Tries every decision on every entry under `stale` leases, and checks that nothing came of it.
async fn settles_nothing<F: DatabaseFixture>(stage: &Stage<F>, stale: &[Lease], due: &[OutboxEntry]) {
    for decision in every_decision() {
        let settlements: Vec<_> = due.iter().map(|entry| settlement(entry, decision.clone())).collect();
        let changed = stage.database.settle(stale, &settlements).await.unwrap();
        assert!(changed.is_empty(), "{decision:?} changed rows {changed:?} under a stale lease");
    }
    let rows = stage.database.list(&OutboxFilter::default(), 100).await.unwrap();
    assert_eq!(rows.len(), due.len());
    assert!(rows.iter().all(|row| row.state == OutboxState::Pending && row.attempts == 0), "{rows:?}");
    assert!(stage.letters().await.is_empty());
    assert_eq!(stage.database.stats().await.unwrap().published, 0);
}

pub async fn a_stale_epoch_changes_nothing<F: DatabaseFixture>(stage: Stage<F>) {
    let messages = series("a", 2);
    stage.enqueue(&messages).await;
    let stale = lease_all(&stage.database, "one", A_MOMENT).await;
    let due = stage.due(&stale).await;

    // The other one takes over as soon as the leases have expired.
    let second = stage.second().await;
    let mut fresh = Vec::new();
    for lease in &stale {
        eventually(SOON, "the lease expires", async || {
            let taken = second.acquire(&lease.name, &holder("two"), LONG).await.unwrap();
            let is_taken = taken.is_some();
            fresh.extend(taken);
            is_taken
        })
        .await;
    }
    settles_nothing(&stage, &stale, &due).await;

    let seen: Vec<_> = second.next(&fresh, 10).await.unwrap().iter().map(|entry| entry.message_id).collect();
    assert_eq!(seen, ids(&messages));
    let settlements: Vec<_> = due.iter().map(|entry| settlement(entry, Decision::Published)).collect();
    assert_eq!(second.settle(&fresh, &settlements).await.unwrap().len(), 2, "the new holder can settle");
}

pub async fn an_earlier_epoch_of_the_same_holder_changes_nothing<F: DatabaseFixture>(stage: Stage<F>) {
    stage.enqueue(&[keyed("a", 1), keyless()]).await;
    let stale = stage.lease_all("one").await;
    let due = stage.due(&stale).await;
    stage.database.release(&stale).await.unwrap();
    settles_nothing(&stage, &stale, &due).await;

    let fresh = stage.lease_all("one").await;
    settles_nothing(&stage, &stale, &due).await;
    let settlements: Vec<_> = due.iter().map(|entry| settlement(entry, Decision::Published)).collect();
    assert_eq!(stage.database.settle(&fresh, &settlements).await.unwrap().len(), 2);
}

pub async fn a_lease_that_expired_and_was_not_taken_still_settles<F: DatabaseFixture>(stage: Stage<F>) {
    stage.enqueue(&[keyed("a", 1)]).await;
    let leases = lease_all(&stage.database, "one", Duration::from_millis(1)).await;
    let due = stage.due(&leases).await;
    eventually(SOON, "the leases expire", async || {
        stage.database.held("outbox/").await.unwrap().is_empty() && leases.iter().all(|lease| !lease.is_live())
    })
    .await;
    let changed = stage.database.settle(&leases, &[settlement(&due[0], Decision::Published)]).await.unwrap();
    assert_eq!(changed, [due[0].row], "the epoch proves that nothing happened in between");
}

pub async fn a_row_without_its_lease_is_left_alone<F: DatabaseFixture>(stage: Stage<F>) {
    stage.enqueue(&[keyed("a", 1)]).await;
    let mut leases = stage.lease_all("one").await;
    let due = stage.due(&leases).await;
    settles_nothing(&stage, &[], &due).await;

    let own = leases.remove(usize::from(due[0].shard.0));
    settles_nothing(&stage, &leases, &due).await;

    // A row that is not there is missing from the answer, and the others are settled all the same.
    let missing = Settlement { row: due[0].row + 1000, shard: due[0].shard, decision: Decision::Published };
    let settlements = [missing, settlement(&due[0], Decision::Published)];
    assert_eq!(stage.database.settle(&[own], &settlements).await.unwrap(), [due[0].row]);
    assert_eq!(stage.database.stats().await.unwrap().published, 1);
}

pub async fn settling_twice_at_once_settles_once<F: DatabaseFixture>(stage: Stage<F>) {
    let messages: Vec<_> = (0..20).map(|n| keyed(&format!("key-{n}"), 1)).collect();
    stage.enqueue(&messages).await;
    let leases = stage.lease_all("one").await;
    let due = stage.due(&leases).await;
    let settlements: Vec<_> = due.iter().map(|entry| settlement(entry, Decision::Published)).collect();

    let second = stage.second().await;
    let here = stage.database.settle(&leases, &settlements);
    let (here, there) = tokio::join!(here, second.settle(&leases, &settlements));
    let (here, there) = (here.unwrap(), there.unwrap());
    let mut settled = [here, there].concat();
    settled.sort();
    assert_eq!(settled, due.iter().map(|entry| entry.row).collect::<Vec<_>>(), "each row is in one answer");
    assert_eq!(stage.database.stats().await.unwrap().published, 20);
    assert!(stage.database.settle(&leases, &settlements).await.unwrap().is_empty());
    assert_eq!(stage.database.stats().await.unwrap().published, 20);
}

pub async fn one_call_carries_out_every_kind_of_decision<F: DatabaseFixture>(stage: Stage<F>) {
    let messages = [keyed("a", 1), keyed("b", 1), keyed("c", 1), keyless(), keyless(), keyless()];
    stage.enqueue(&messages).await;
    let leases = stage.lease_all("one").await;
    let due = stage.due(&leases).await;
    let decisions = every_decision().into_iter().cycle();
    let settlements: Vec<_> = due.iter().zip(decisions).map(|(entry, decision)| settlement(entry, decision)).collect();
    let mut changed = stage.database.settle(&leases, &settlements).await.unwrap();
    changed.sort();
    assert_eq!(changed, due.iter().map(|entry| entry.row).collect::<Vec<_>>());
    let stats = stage.database.stats().await.unwrap();
    assert_eq!((stats.pending, stats.retrying, stats.parked, stats.published), (0, 2, 2, 2));
}
