//! Leases: expiry, fencing, renewal and its ceiling.

use std::time::Duration;

use landfall_core::idempotency::{Claim, IdempotencyRecords, OnUnknown, Outcome, Settled, Snapshot, Terms};

use super::fixture::{SHORT, TIMEOUT, done, epoch, order, request, rerun, uncertain};
use super::{RecordsFixture, Steps};
use crate::eventually;

pub async fn expired_attempt_is_rerun_under_a_higher_epoch<F: RecordsFixture>(steps: Steps<F>) {
    let first = steps.abandon(&order("1"), OnUnknown::Rerun).await;
    // The policy of the attempt that crashed counts, not that of the next one.
    assert!(steps.claimed(&order("1"), &uncertain()).await > first);
}

pub async fn expired_attempt_is_uncertain_if_it_asked_for_that<F: RecordsFixture>(steps: Steps<F>) {
    let first = steps.abandon(&order("1"), OnUnknown::Uncertain).await;
    for _ in 0..2 {
        assert_eq!(steps.claim(&order("1"), &rerun()).await, Claim::Uncertain);
    }
    // It was only slow, and knows what it did.
    assert_eq!(steps.settle(&order("1"), first, done("late")).await, Settled::Recorded);
    assert_eq!(steps.claim(&order("1"), &rerun()).await, Claim::Completed(Snapshot::from_bytes("late")));
}

pub async fn concurrent_takeovers_have_one_winner<F: RecordsFixture>(steps: Steps<F>) {
    steps.abandon(&order("1"), OnUnknown::Rerun).await;
    let stores = [steps.store.clone(), steps.fixture.open().await];
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..20 {
        let store = stores[number % stores.len()].clone();
        tasks.spawn(async move { store.claim_record(&order("1"), &request("first"), &rerun()).await.unwrap() });
    }
    let claims = tasks.join_all().await;
    let winners = claims.iter().filter(|claim| matches!(claim, Claim::Claimed { .. })).count();
    assert_eq!(winners, 1, "{claims:?}");
}

pub async fn stale_attempt_settles_nothing<F: RecordsFixture>(steps: Steps<F>) {
    let stale = steps.abandon(&order("1"), OnUnknown::Rerun).await;
    let current = steps.claimed(&order("1"), &rerun()).await;
    for outcome in [done("stale"), Outcome::NothingDone, Outcome::Unknown("stale".into())] {
        assert_eq!(steps.settle(&order("1"), stale, outcome).await, Settled::Lost(None));
    }
    assert!(matches!(steps.claim(&order("1"), &rerun()).await, Claim::InFlight { .. }));
    assert_eq!(steps.settle(&order("1"), current, done("winner")).await, Settled::Recorded);
    let winner = Snapshot::from_bytes("winner");
    assert_eq!(steps.settle(&order("1"), stale, done("stale")).await, Settled::Lost(Some(winner.clone())));
    assert_eq!(steps.settle(&order("1"), stale, Outcome::NothingDone).await, Settled::Lost(Some(winner.clone())));
    assert_eq!(steps.claim(&order("1"), &rerun()).await, Claim::Completed(winner));
    assert_eq!(steps.settle(&order("never"), stale, done("1")).await, Settled::Lost(None));
}

pub async fn expired_but_unclaimed_attempt_still_settles<F: RecordsFixture>(steps: Steps<F>) {
    let first = steps.abandon(&order("1"), OnUnknown::Rerun).await;
    assert!(steps.store.renew_record(&order("1"), first, SHORT).await.unwrap().is_some());
    assert_eq!(steps.settle(&order("1"), first, done("1")).await, Settled::Recorded);
}

pub async fn renewal_outlives_the_lease<F: RecordsFixture>(steps: Steps<F>) {
    let terms = Terms { lease: SHORT, ..rerun() };
    let first = steps.claimed(&order("1"), &terms).await;
    let begun = std::time::Instant::now();
    while begun.elapsed() < 4 * SHORT {
        let rest = steps.store.renew_record(&order("1"), first, Duration::from_secs(30)).await.unwrap();
        assert!(rest.is_some_and(|rest| rest > Duration::from_secs(10)), "{rest:?}");
        tokio::time::sleep(SHORT / 3).await;
    }
    assert!(matches!(steps.claim(&order("1"), &terms).await, Claim::InFlight { .. }));
    assert_eq!(steps.settle(&order("1"), first, done("1")).await, Settled::Recorded);
    assert_eq!(steps.store.renew_record(&order("1"), first, SHORT).await.unwrap(), None, "a settled one was renewed");
}

pub async fn ceiling_ends_the_renewals<F: RecordsFixture>(steps: Steps<F>) {
    let terms = Terms { lease: SHORT, ceiling: 2 * SHORT, on_unknown: OnUnknown::Rerun };
    let first = steps.claimed(&order("1"), &terms).await;
    let rest = steps.store.renew_record(&order("1"), first, Duration::from_secs(3600)).await.unwrap();
    assert!(rest.is_some_and(|rest| rest <= 2 * SHORT), "the renewal exceeds the ceiling: {rest:?}");
    eventually(TIMEOUT, "the ceiling", async || {
        steps.store.renew_record(&order("1"), first, Duration::from_secs(3600)).await.unwrap().is_none()
    })
    .await;
    assert!(epoch(steps.claim(&order("1"), &terms).await) > first);
}

pub async fn lost_attempt_is_not_renewed<F: RecordsFixture>(steps: Steps<F>) {
    let stale = steps.abandon(&order("1"), OnUnknown::Rerun).await;
    let current = steps.claimed(&order("1"), &rerun()).await;
    assert_eq!(steps.store.renew_record(&order("1"), stale, SHORT).await.unwrap(), None);
    assert!(steps.store.renew_record(&order("1"), current, SHORT).await.unwrap().is_some());
    assert_eq!(steps.store.renew_record(&order("never"), current, SHORT).await.unwrap(), None);
}
