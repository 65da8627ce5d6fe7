//! Leases: one holder at a time, an epoch that grows, and the database's clock.

use std::time::{Duration, Instant};

use landfall_core::{Lease, LeaseName, Leases};

use super::stage::{A_MOMENT, LONG, SOON, holder};
use super::{DatabaseFixture, Stage};
use crate::eventually;

fn name(text: &str) -> LeaseName {
    LeaseName(text.to_owned())
}

async fn take<D: Leases>(database: &D, lease: &str, by: &str, ttl: Duration) -> Option<Lease> {
    database.acquire(&name(lease), &holder(by), ttl).await.unwrap()
}

/// Takes it over as soon as it has expired.
async fn take_over<D: Leases>(database: &D, lease: &str, by: &str) -> Lease {
    let mut taken = None;
    eventually(SOON, "the lease expires", async || {
        taken = take(database, lease, by, LONG).await;
        taken.is_some()
    })
    .await;
    taken.unwrap()
}

async fn expired<D: Leases>(database: &D) {
    eventually(SOON, "the lease expires", async || database.held("").await.unwrap().is_empty()).await;
}

/// Lets a moment pass on the database's clock: a lease taken now for that long has expired.
async fn a_moment_passes<D: Leases>(database: &D) {
    take(database, "control", "control", A_MOMENT).await.unwrap();
    eventually(SOON, "the control lease expires", async || database.held("control").await.unwrap().is_empty()).await;
}

pub async fn a_lease_is_exclusive<F: DatabaseFixture>(stage: Stage<F>) {
    let second = stage.second().await;
    let lease = take(&stage.database, "x", "one", LONG).await.unwrap();
    assert_eq!((&lease.name, &lease.holder), (&name("x"), &holder("one")));
    assert!(lease.is_live());
    assert!(take(&second, "x", "two", LONG).await.is_none());
    assert!(take(&second, "y", "two", LONG).await.is_some(), "another name is another lease");
}

pub async fn of_many_who_ask_at_once_one_gets_it<F: DatabaseFixture>(stage: Stage<F>) {
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..8 {
        let database = stage.second().await;
        tasks.spawn(async move { take(&database, "x", &format!("holder-{n}"), LONG).await });
    }
    let answers = tasks.join_all().await;
    assert_eq!(answers.iter().flatten().count(), 1, "{answers:?}");
}

pub async fn a_lease_never_lasts_longer_here_than_in_the_database<F: DatabaseFixture>(stage: Stage<F>) {
    let before = Instant::now();
    let lease = take(&stage.database, "x", "one", LONG).await.unwrap();
    let after = Instant::now();
    assert!(lease.until >= before + LONG && lease.until <= after + LONG);
    let before = Instant::now();
    let renewed = stage.database.renew(&[lease], LONG).await.unwrap();
    assert!(renewed[0].until >= before + LONG && renewed[0].until <= Instant::now() + LONG);

    // Once the other one has it, ours is over by our own clock too.
    let short = take(&stage.database, "y", "one", A_MOMENT).await.unwrap();
    take_over(&stage.database, "y", "two").await;
    assert!(!short.is_live());
}

pub async fn taking_what_one_holds_keeps_the_epoch<F: DatabaseFixture>(stage: Stage<F>) {
    // On a busy machine the first may be over before it is taken again, and then there is a next epoch.
    let (mut lease, mut first, mut again) = (String::new(), None, None);
    eventually(SOON, "it is taken again in time", async || {
        lease.push('x');
        first = take(&stage.database, &lease, "one", A_MOMENT).await;
        again = take(&stage.database, &lease, "one", LONG).await;
        first.as_ref().is_some_and(Lease::is_live)
    })
    .await;
    let (first, again) = (first.unwrap(), again.unwrap());
    assert_eq!(again.epoch, first.epoch);
    assert!(again.until > first.until);
    let second = stage.second().await;
    a_moment_passes(&second).await;
    assert!(take(&second, &lease, "two", LONG).await.is_none(), "the time was extended");
}

pub async fn an_expired_lease_changes_hands_with_the_next_epoch<F: DatabaseFixture>(stage: Stage<F>) {
    let second = stage.second().await;
    let first = take(&stage.database, "x", "one", A_MOMENT).await.unwrap();
    let next = take_over(&second, "x", "two").await;
    assert_eq!(next.epoch, first.epoch + 1);
    assert!(take(&stage.database, "x", "one", LONG).await.is_none());
}

pub async fn renewing_keeps_the_epoch_and_extends_the_time<F: DatabaseFixture>(stage: Stage<F>) {
    let mut leases = Vec::new();
    for lease in ["b", "a", "c"] {
        leases.push(take(&stage.database, lease, "one", A_MOMENT).await.unwrap());
    }
    let renewed = stage.database.renew(&leases, LONG).await.unwrap();
    let named = |leases: &[Lease]| leases.iter().map(|lease| (lease.name.clone(), lease.epoch)).collect::<Vec<_>>();
    assert_eq!(named(&renewed), named(&leases), "in the order asked for, under the same epochs");
    let second = stage.second().await;
    a_moment_passes(&second).await;
    assert!(take(&second, "a", "two", LONG).await.is_none(), "the time was extended");
    assert!(stage.database.renew(&[], LONG).await.unwrap().is_empty());
}

pub async fn a_lease_that_was_taken_over_is_not_renewed<F: DatabaseFixture>(stage: Stage<F>) {
    let lost = take(&stage.database, "lost", "one", A_MOMENT).await.unwrap();
    let kept = take(&stage.database, "kept", "one", LONG).await.unwrap();
    let second = stage.second().await;
    let taken = take_over(&second, "lost", "two").await;

    let renewed = stage.database.renew(&[lost, kept], LONG).await.unwrap();
    assert_eq!(renewed.iter().map(|lease| &lease.name).collect::<Vec<_>>(), [&name("kept")]);
    let still = second.renew(&[taken], LONG).await.unwrap();
    assert_eq!(still.len(), 1, "the new holder noticed nothing");
}

pub async fn a_lease_that_expired_and_was_not_taken_is_renewed<F: DatabaseFixture>(stage: Stage<F>) {
    let lease = take(&stage.database, "x", "one", Duration::from_millis(1)).await.unwrap();
    expired(&stage.database).await;
    let renewed = stage.database.renew(std::slice::from_ref(&lease), LONG).await.unwrap();
    assert_eq!(renewed.iter().map(|lease| lease.epoch).collect::<Vec<_>>(), [lease.epoch]);
    assert!(take(&stage.second().await, "x", "two", LONG).await.is_none());
}

pub async fn a_released_lease_is_free_at_once_under_a_new_epoch<F: DatabaseFixture>(stage: Stage<F>) {
    let lease = take(&stage.database, "x", "one", LONG).await.unwrap();
    stage.database.release(std::slice::from_ref(&lease)).await.unwrap();
    assert!(stage.database.held("").await.unwrap().is_empty());
    let renewed = stage.database.renew(std::slice::from_ref(&lease), LONG).await.unwrap();
    assert!(renewed.is_empty(), "what was given back is not renewed");
    let next = take(&stage.second().await, "x", "two", LONG).await.unwrap();
    assert!(next.epoch > lease.epoch);
}

pub async fn releasing_is_idempotent_and_harmless_by_a_stale_holder<F: DatabaseFixture>(stage: Stage<F>) {
    stage.database.release(&[]).await.unwrap();
    let first = take(&stage.database, "x", "one", LONG).await.unwrap();
    stage.database.release(std::slice::from_ref(&first)).await.unwrap();
    stage.database.release(std::slice::from_ref(&first)).await.unwrap();

    // The same holder took it again: the old lease is stale all the same.
    let again = take(&stage.database, "x", "one", LONG).await.unwrap();
    stage.database.release(std::slice::from_ref(&first)).await.unwrap();
    assert_eq!(stage.database.held("").await.unwrap(), [name("x")]);
    assert_eq!(stage.database.renew(&[again], LONG).await.unwrap().len(), 1);
}

pub async fn those_who_let_a_lease_expire_are_named_until_somebody_has_taken_it<F: DatabaseFixture>(stage: Stage<F>) {
    for (lease, by) in [("outbox/1", "slow"), ("outbox/2", "slow"), ("outbox/3", "dead"), ("relay/0", "other")] {
        take(&stage.database, lease, by, A_MOMENT).await.unwrap();
    }
    take(&stage.database, "outbox/4", "alive", LONG).await.unwrap();
    let given_back = take(&stage.database, "outbox/5", "gone", LONG).await.unwrap();
    stage.database.release(&[given_back]).await.unwrap();
    let lapsed = async || stage.database.lapsed("outbox/").await.unwrap();
    let both = [holder("dead"), holder("slow")];
    eventually(SOON, "both are named, and nobody else", async || lapsed().await == both).await;
    take(&stage.database, "outbox/3", "alive", LONG).await.unwrap();
    take(&stage.database, "outbox/1", "alive", LONG).await.unwrap();
    assert_eq!(lapsed().await, [holder("slow")], "it has another one");
}

pub async fn held_names_what_is_held_now_in_order<F: DatabaseFixture>(stage: Stage<F>) {
    for lease in ["relay/b", "relay/a", "relay/%", "relayX", "outbox/1", "Relay/c"] {
        take(&stage.database, lease, "one", LONG).await.unwrap();
    }
    let released = take(&stage.database, "relay/released", "one", LONG).await.unwrap();
    stage.database.release(&[released]).await.unwrap();
    take(&stage.database, "relay/expired", "one", Duration::from_millis(1)).await.unwrap();
    let expected = [name("relay/%"), name("relay/a"), name("relay/b")];
    eventually(SOON, "what has expired is gone", async || {
        let held = stage.database.held("relay/").await.unwrap();
        held.len() == 3
    })
    .await;
    assert_eq!(stage.database.held("relay/").await.unwrap(), expected);
    assert_eq!(stage.database.held("relay/%").await.unwrap(), [name("relay/%")], "a prefix is no pattern");
    assert_eq!(stage.database.held("relay_").await.unwrap(), [], "a prefix is no pattern");
    assert_eq!(stage.database.held("").await.unwrap().len(), 6);
}
