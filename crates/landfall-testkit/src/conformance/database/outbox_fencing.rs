//! Fencing: a relay that lost its lease cannot settle.

use std::time::Duration;

use landfall_core::adapter::{Decision, Lease, OutboxEntry, Settlement};
use landfall_core::{ErrorCode, Leases, OutboxFilter, OutboxQueue, OutboxState, OutboxView};

use super::harness::{LONG, SHORT_WAIT, TIMEOUT, holder, lease_all, settlement};
use super::{DatabaseFixture, Harness};
use crate::conformance::sample::{ids, keyed, keyless, series};
use crate::eventually;

fn every_decision() -> [Decision; 3] {
    [
        Decision::Published,
        Decision::Retry { after: LONG, error: "late".into() },
        Decision::Park { code: ErrorCode::UNAVAILABLE, error: "late".into(), holds_key: true },
    ]
}

/// Asserts that no decision on any entry has an effect under `stale` leases.
async fn assert_settles_nothing<F: DatabaseFixture>(harness: &Harness<F>, stale: &[Lease], due: &[OutboxEntry]) {
    for decision in every_decision() {
        let settlements: Vec<_> = due.iter().map(|entry| settlement(entry, decision.clone())).collect();
        let changed = harness.database.settle(stale, &settlements).await.unwrap();
        assert!(changed.is_empty(), "{decision:?} changed rows {changed:?} under a stale lease");
    }
    let rows = harness.database.list(&OutboxFilter::default(), 100).await.unwrap();
    assert_eq!(rows.len(), due.len());
    assert!(rows.iter().all(|row| row.state == OutboxState::Pending && row.attempts == 0), "{rows:?}");
    assert!(harness.letters().await.is_empty());
    assert_eq!(harness.database.stats().await.unwrap().published, 0);
}

pub async fn stale_epoch_settles_nothing<F: DatabaseFixture>(harness: Harness<F>) {
    let messages = series("a", 2);
    harness.enqueue(&messages).await;
    let stale = lease_all(&harness.database, "one", SHORT_WAIT).await;
    let due = harness.due(&stale).await;

    // Another holder acquires the leases as soon as they have expired.
    let second = harness.second().await;
    let mut fresh = Vec::new();
    for lease in &stale {
        eventually(TIMEOUT, "the lease expires", async || {
            let acquired = second.acquire(&lease.name, &holder("two"), LONG).await.unwrap();
            let is_acquired = acquired.is_some();
            fresh.extend(acquired);
            is_acquired
        })
        .await;
    }
    assert_settles_nothing(&harness, &stale, &due).await;

    let seen: Vec<_> = second.next(&fresh, 10).await.unwrap().iter().map(|entry| entry.message_id).collect();
    assert_eq!(seen, ids(&messages));
    let settlements: Vec<_> = due.iter().map(|entry| settlement(entry, Decision::Published)).collect();
    assert_eq!(second.settle(&fresh, &settlements).await.unwrap().len(), 2, "the new holder could not settle");
}

pub async fn earlier_epoch_of_the_same_holder_settles_nothing<F: DatabaseFixture>(harness: Harness<F>) {
    harness.enqueue(&[keyed("a", 1), keyless()]).await;
    let stale = harness.lease_all("one").await;
    let due = harness.due(&stale).await;
    harness.database.release(&stale).await.unwrap();
    assert_settles_nothing(&harness, &stale, &due).await;

    let fresh = harness.lease_all("one").await;
    assert_settles_nothing(&harness, &stale, &due).await;
    let settlements: Vec<_> = due.iter().map(|entry| settlement(entry, Decision::Published)).collect();
    assert_eq!(harness.database.settle(&fresh, &settlements).await.unwrap().len(), 2);
}

pub async fn expired_but_unclaimed_lease_still_settles<F: DatabaseFixture>(harness: Harness<F>) {
    harness.enqueue(&[keyed("a", 1)]).await;
    let leases = lease_all(&harness.database, "one", Duration::from_millis(1)).await;
    let due = harness.due(&leases).await;
    eventually(TIMEOUT, "the leases expire", async || {
        harness.database.held("outbox/").await.unwrap().is_empty() && leases.iter().all(|lease| !lease.is_live())
    })
    .await;
    let changed = harness.database.settle(&leases, &[settlement(&due[0], Decision::Published)]).await.unwrap();
    assert_eq!(changed, [due[0].row], "an unclaimed lease must still settle: its epoch has not changed");
}

pub async fn row_is_not_settled_without_its_shard_lease<F: DatabaseFixture>(harness: Harness<F>) {
    harness.enqueue(&[keyed("a", 1)]).await;
    let mut leases = harness.lease_all("one").await;
    let due = harness.due(&leases).await;
    assert_settles_nothing(&harness, &[], &due).await;

    let own = leases.remove(usize::from(due[0].shard.0));
    assert_settles_nothing(&harness, &leases, &due).await;

    // A row that does not exist is missing from the result, and the others are settled.
    let missing = Settlement { row: due[0].row + 1000, shard: due[0].shard, decision: Decision::Published };
    let settlements = [missing, settlement(&due[0], Decision::Published)];
    assert_eq!(harness.database.settle(&[own], &settlements).await.unwrap(), [due[0].row]);
    assert_eq!(harness.database.stats().await.unwrap().published, 1);
}

pub async fn concurrent_settles_settle_each_row_once<F: DatabaseFixture>(harness: Harness<F>) {
    let messages: Vec<_> = (0..20).map(|n| keyed(&format!("key-{n}"), 1)).collect();
    harness.enqueue(&messages).await;
    let leases = harness.lease_all("one").await;
    let due = harness.due(&leases).await;
    let settlements: Vec<_> = due.iter().map(|entry| settlement(entry, Decision::Published)).collect();

    let second = harness.second().await;
    let here = harness.database.settle(&leases, &settlements);
    let (here, there) = tokio::join!(here, second.settle(&leases, &settlements));
    let (here, there) = (here.unwrap(), there.unwrap());
    let mut settled = [here, there].concat();
    settled.sort();
    assert_eq!(settled, due.iter().map(|entry| entry.row).collect::<Vec<_>>(), "each row is in exactly one result");
    assert_eq!(harness.database.stats().await.unwrap().published, 20);
    assert!(harness.database.settle(&leases, &settlements).await.unwrap().is_empty());
    assert_eq!(harness.database.stats().await.unwrap().published, 20);
}

pub async fn one_settle_call_mixes_all_decisions<F: DatabaseFixture>(harness: Harness<F>) {
    let messages = [keyed("a", 1), keyed("b", 1), keyed("c", 1), keyless(), keyless(), keyless()];
    harness.enqueue(&messages).await;
    let leases = harness.lease_all("one").await;
    let due = harness.due(&leases).await;
    let decisions = every_decision().into_iter().cycle();
    let settlements: Vec<_> = due.iter().zip(decisions).map(|(entry, decision)| settlement(entry, decision)).collect();
    let mut changed = harness.database.settle(&leases, &settlements).await.unwrap();
    changed.sort();
    assert_eq!(changed, due.iter().map(|entry| entry.row).collect::<Vec<_>>());
    let stats = harness.database.stats().await.unwrap();
    assert_eq!((stats.pending, stats.retrying, stats.parked, stats.published), (0, 2, 2, 2));
}
