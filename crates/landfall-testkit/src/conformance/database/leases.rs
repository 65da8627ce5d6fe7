//! Leases: one holder at a time, a growing epoch, and expiry by the database's clock.

use std::time::{Duration, Instant};

use landfall_core::adapter::{Lease, LeaseName};
use landfall_core::{Database, Leases};

use super::harness::{LONG, SHORT_WAIT, TIMEOUT, holder};
use super::{DatabaseFixture, Harness};
use crate::eventually;

fn name(text: &str) -> LeaseName {
    LeaseName(text.to_owned())
}

async fn acquire<D: Leases>(database: &D, lease: &str, by: &str, ttl: Duration) -> Option<Lease> {
    database.acquire(&name(lease), &holder(by), ttl).await.unwrap()
}

/// Acquires the lease as soon as it has expired.
async fn acquire_expired<D: Leases>(database: &D, lease: &str, by: &str) -> Lease {
    let mut acquired = None;
    eventually(TIMEOUT, "the lease expires", async || {
        acquired = acquire(database, lease, by, LONG).await;
        acquired.is_some()
    })
    .await;
    acquired.unwrap()
}

async fn wait_until_expired<D: Leases>(database: &D) {
    eventually(TIMEOUT, "the lease expires", async || database.held("").await.unwrap().is_empty()).await;
}

/// Waits until a lease acquired now with the short TTL has expired by the database's clock.
async fn wait_for_short_ttl<D: Leases>(database: &D) {
    acquire(database, "control", "control", SHORT_WAIT).await.unwrap();
    eventually(TIMEOUT, "the control lease expires", async || database.held("control").await.unwrap().is_empty()).await;
}

pub async fn lease_is_exclusive<F: DatabaseFixture>(harness: Harness<F>) {
    let second = harness.second().await;
    let lease = acquire(&harness.database, "x", "one", LONG).await.unwrap();
    assert_eq!((&lease.name, &lease.holder), (&name("x"), &holder("one")));
    assert!(lease.is_live());
    assert!(acquire(&second, "x", "two", LONG).await.is_none());
    assert!(acquire(&second, "y", "two", LONG).await.is_some(), "leases with different names are not independent");
}

pub async fn concurrent_acquires_have_one_winner<F: DatabaseFixture>(harness: Harness<F>) {
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..8 {
        let database = harness.second().await;
        tasks.spawn(async move { acquire(&database, "x", &format!("holder-{n}"), LONG).await });
    }
    let results = tasks.join_all().await;
    assert_eq!(results.iter().flatten().count(), 1, "{results:?}");
}

pub async fn local_expiry_never_exceeds_database_expiry<F: DatabaseFixture>(harness: Harness<F>) {
    let before = Instant::now();
    let lease = acquire(&harness.database, "x", "one", LONG).await.unwrap();
    let after = Instant::now();
    assert!(lease.until >= before + LONG && lease.until <= after + LONG);
    let before = Instant::now();
    let renewed = harness.database.renew(&[lease], LONG).await.unwrap();
    assert!(renewed[0].until >= before + LONG && renewed[0].until <= Instant::now() + LONG);

    // Once another holder has the lease, it has expired by the local clock too.
    let short = acquire(&harness.database, "y", "one", SHORT_WAIT).await.unwrap();
    acquire_expired(&harness.database, "y", "two").await;
    assert!(!short.is_live());
}

pub async fn reacquiring_a_held_lease_keeps_the_epoch<F: DatabaseFixture>(harness: Harness<F>) {
    // On a busy machine the lease may expire before it is acquired again, which grows the epoch.
    let (mut lease, mut first, mut again) = (String::new(), None, None);
    eventually(TIMEOUT, "the lease is acquired again in time", async || {
        lease.push('x');
        first = acquire(&harness.database, &lease, "one", SHORT_WAIT).await;
        again = acquire(&harness.database, &lease, "one", LONG).await;
        first.as_ref().is_some_and(Lease::is_live)
    })
    .await;
    let (first, again) = (first.unwrap(), again.unwrap());
    assert_eq!(again.epoch, first.epoch);
    assert!(again.until > first.until);
    let second = harness.second().await;
    wait_for_short_ttl(&second).await;
    assert!(acquire(&second, &lease, "two", LONG).await.is_none(), "the lease was not extended");
}

pub async fn expired_lease_is_acquired_under_the_next_epoch<F: DatabaseFixture>(harness: Harness<F>) {
    let second = harness.second().await;
    let first = acquire(&harness.database, "x", "one", SHORT_WAIT).await.unwrap();
    let next = acquire_expired(&second, "x", "two").await;
    assert_eq!(next.epoch, first.epoch + 1);
    assert!(acquire(&harness.database, "x", "one", LONG).await.is_none());
}

async fn misdate_leases<F: DatabaseFixture>(harness: &Harness<F>) {
    let mut transaction = harness.database.begin().await.unwrap();
    harness.fixture.misdate_leases(&mut transaction).await;
    harness.database.commit(transaction).await.unwrap();
}

pub async fn lease_written_under_a_wrong_clock_is_taken_over<F: DatabaseFixture>(harness: Harness<F>) {
    let second = harness.second().await;
    let first = acquire(&harness.database, "x", "one", LONG).await.unwrap();
    misdate_leases(&harness).await;
    assert_eq!(second.held("").await.unwrap(), []);
    assert_eq!(second.lapsed("").await.unwrap(), [holder("one")]);
    let next = acquire(&second, "x", "two", LONG).await.expect("the expiry is further away than a lease lasts");
    assert_eq!(next.epoch, first.epoch + 1);

    // The previous holder, if it lives, can neither renew nor acquire the lease.
    assert!(harness.database.renew(&[first], LONG).await.unwrap().is_empty());
    assert!(acquire(&harness.database, "x", "one", LONG).await.is_none());
    assert_eq!(second.held("").await.unwrap(), [name("x")]);
}

pub async fn live_holder_of_a_misdated_lease_keeps_it_by_renewing<F: DatabaseFixture>(harness: Harness<F>) {
    let lease = acquire(&harness.database, "x", "one", LONG).await.unwrap();
    misdate_leases(&harness).await;
    let renewed = harness.database.renew(std::slice::from_ref(&lease), LONG).await.unwrap();
    assert_eq!(renewed.iter().map(|lease| lease.epoch).collect::<Vec<_>>(), [lease.epoch]);
    // Holders may have leases of different lengths; the length is judged as its holder asked.
    let second = harness.second().await;
    assert!(acquire(&second, "x", "two", Duration::from_millis(1)).await.is_none(), "a live lease was taken over");
}

pub async fn renew_keeps_the_epoch_and_extends_the_lease<F: DatabaseFixture>(harness: Harness<F>) {
    let mut leases = Vec::new();
    for lease in ["b", "a", "c"] {
        leases.push(acquire(&harness.database, lease, "one", SHORT_WAIT).await.unwrap());
    }
    let renewed = harness.database.renew(&leases, LONG).await.unwrap();
    let named = |leases: &[Lease]| leases.iter().map(|lease| (lease.name.clone(), lease.epoch)).collect::<Vec<_>>();
    assert_eq!(named(&renewed), named(&leases), "order or epochs changed");
    let second = harness.second().await;
    wait_for_short_ttl(&second).await;
    assert!(acquire(&second, "a", "two", LONG).await.is_none(), "the lease was not extended");
    assert!(harness.database.renew(&[], LONG).await.unwrap().is_empty());
}

pub async fn lost_lease_is_not_renewed<F: DatabaseFixture>(harness: Harness<F>) {
    let lost = acquire(&harness.database, "lost", "one", SHORT_WAIT).await.unwrap();
    let kept = acquire(&harness.database, "kept", "one", LONG).await.unwrap();
    let second = harness.second().await;
    let acquired = acquire_expired(&second, "lost", "two").await;

    let renewed = harness.database.renew(&[lost, kept], LONG).await.unwrap();
    assert_eq!(renewed.iter().map(|lease| &lease.name).collect::<Vec<_>>(), [&name("kept")]);
    let still = second.renew(&[acquired], LONG).await.unwrap();
    assert_eq!(still.len(), 1, "the new holder lost the lease");
}

pub async fn expired_but_unclaimed_lease_is_renewed<F: DatabaseFixture>(harness: Harness<F>) {
    let lease = acquire(&harness.database, "x", "one", Duration::from_millis(1)).await.unwrap();
    wait_until_expired(&harness.database).await;
    let renewed = harness.database.renew(std::slice::from_ref(&lease), LONG).await.unwrap();
    assert_eq!(renewed.iter().map(|lease| lease.epoch).collect::<Vec<_>>(), [lease.epoch]);
    assert!(acquire(&harness.second().await, "x", "two", LONG).await.is_none());
}

pub async fn released_lease_is_free_under_a_new_epoch<F: DatabaseFixture>(harness: Harness<F>) {
    let lease = acquire(&harness.database, "x", "one", LONG).await.unwrap();
    harness.database.release(std::slice::from_ref(&lease)).await.unwrap();
    assert!(harness.database.held("").await.unwrap().is_empty());
    let renewed = harness.database.renew(std::slice::from_ref(&lease), LONG).await.unwrap();
    assert!(renewed.is_empty(), "a released lease was renewed");
    let next = acquire(&harness.second().await, "x", "two", LONG).await.unwrap();
    assert!(next.epoch > lease.epoch);
}

pub async fn release_is_idempotent_and_ignores_stale_leases<F: DatabaseFixture>(harness: Harness<F>) {
    harness.database.release(&[]).await.unwrap();
    let first = acquire(&harness.database, "x", "one", LONG).await.unwrap();
    harness.database.release(std::slice::from_ref(&first)).await.unwrap();
    harness.database.release(std::slice::from_ref(&first)).await.unwrap();

    // The same holder acquired it again: the old lease is stale nevertheless.
    let again = acquire(&harness.database, "x", "one", LONG).await.unwrap();
    harness.database.release(std::slice::from_ref(&first)).await.unwrap();
    assert_eq!(harness.database.held("").await.unwrap(), [name("x")]);
    assert_eq!(harness.database.renew(&[again], LONG).await.unwrap().len(), 1);
}

pub async fn lapsed_returns_holders_of_expired_unclaimed_leases<F: DatabaseFixture>(harness: Harness<F>) {
    for (lease, by) in [("outbox/1", "slow"), ("outbox/2", "slow"), ("outbox/3", "dead"), ("relay/0", "other")] {
        acquire(&harness.database, lease, by, SHORT_WAIT).await.unwrap();
    }
    acquire(&harness.database, "outbox/4", "alive", LONG).await.unwrap();
    let released = acquire(&harness.database, "outbox/5", "gone", LONG).await.unwrap();
    harness.database.release(&[released]).await.unwrap();
    let lapsed = async || harness.database.lapsed("outbox/").await.unwrap();
    let both = [holder("dead"), holder("slow")];
    eventually(TIMEOUT, "lapsed returns exactly both holders", async || lapsed().await == both).await;
    acquire(&harness.database, "outbox/3", "alive", LONG).await.unwrap();
    acquire(&harness.database, "outbox/1", "alive", LONG).await.unwrap();
    assert_eq!(lapsed().await, [holder("slow")], "the holder still has an expired lease");
}

pub async fn held_returns_live_leases_in_order<F: DatabaseFixture>(harness: Harness<F>) {
    for lease in ["relay/b", "relay/a", "relay/%", "relayX", "outbox/1", "Relay/c"] {
        acquire(&harness.database, lease, "one", LONG).await.unwrap();
    }
    let released = acquire(&harness.database, "relay/released", "one", LONG).await.unwrap();
    harness.database.release(&[released]).await.unwrap();
    acquire(&harness.database, "relay/expired", "one", Duration::from_millis(1)).await.unwrap();
    let expected = [name("relay/%"), name("relay/a"), name("relay/b")];
    eventually(TIMEOUT, "the expired lease is gone", async || {
        let held = harness.database.held("relay/").await.unwrap();
        held.len() == 3
    })
    .await;
    assert_eq!(harness.database.held("relay/").await.unwrap(), expected);
    assert_eq!(
        harness.database.held("relay/%").await.unwrap(),
        [name("relay/%")],
        "the prefix was interpreted as a pattern"
    );
    assert_eq!(harness.database.held("relay_").await.unwrap(), [], "the prefix was interpreted as a pattern");
    assert_eq!(harness.database.held("").await.unwrap().len(), 6);
}
