//! Claims: one winner, the same answer for every repeat, and no other request under a used key.

use std::time::Duration;

use landfall_core::idempotency::{
    Claim, IdempotencyRecords, Identity, OnUnknown, Outcome, Scope, Settled, Snapshot, Terms,
};

use super::fixture::{SHORT, done, epoch, order, request, rerun, tenant, uncertain};
use super::{RecordsFixture, Steps};

pub async fn repeat_replays_the_answer_byte_for_byte<F: RecordsFixture>(steps: Steps<F>) {
    let headers =
        vec![("location".to_owned(), "/orders/7".to_owned()), ("link".to_owned(), "<ä>; rel=\"x\"".to_owned())];
    for (key, body) in [("binary", (0..=255).collect::<Vec<u8>>()), ("empty", Vec::new())] {
        let answer = Snapshot::new(201, headers.clone(), body);
        let epoch = steps.claimed(&order(key), &rerun()).await;
        assert_eq!(steps.settle(&order(key), epoch, Outcome::Done(answer.clone())).await, Settled::Recorded);
        for store in [steps.store.clone(), steps.fixture.open().await] {
            let repeat = store.claim_record(&order(key), &request("first"), &rerun()).await.unwrap();
            assert_eq!(repeat, Claim::Completed(answer.clone()));
        }
    }
}

pub async fn hundred_concurrent_claims_have_one_winner<F: RecordsFixture>(steps: Steps<F>) {
    let stores = [steps.store.clone(), steps.fixture.open().await, steps.fixture.open().await];
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..100 {
        let store = stores[number % stores.len()].clone();
        tasks.spawn(async move { store.claim_record(&order("1"), &request("first"), &rerun()).await.unwrap() });
    }
    let claims = tasks.join_all().await;
    let winners: Vec<_> = claims.iter().filter(|claim| matches!(claim, Claim::Claimed { .. })).collect();
    assert_eq!(winners.len(), 1, "{winners:?}");
    let waiting = claims.iter().filter(|claim| matches!(claim, Claim::InFlight { .. })).count();
    assert_eq!(waiting, 99, "{claims:?}");
}

pub async fn other_fingerprint_is_refused_in_every_state<F: RecordsFixture>(steps: Steps<F>) {
    let refused = async |key: &str, state: &str| {
        let claim = steps.store.claim_record(&order(key), &request("second"), &rerun()).await.unwrap();
        assert_eq!(claim, Claim::Mismatch, "{state}");
    };
    let in_flight = steps.claimed(&order("1"), &rerun()).await;
    refused("1", "in flight").await;
    assert_eq!(steps.settle(&order("1"), in_flight, done("1")).await, Settled::Recorded);
    refused("1", "completed").await;
    let unknown = steps.claimed(&order("2"), &uncertain()).await;
    steps.settle(&order("2"), unknown, Outcome::Unknown("lost".into())).await;
    refused("2", "uncertain").await;
    let unknown = steps.claimed(&order("3"), &rerun()).await;
    steps.settle(&order("3"), unknown, Outcome::Unknown("lost".into())).await;
    refused("3", "unknown, to be run again").await;
    // The refusal has changed nothing.
    assert!(matches!(steps.claim(&order("1"), &rerun()).await, Claim::Completed(_)));
    assert!(epoch(steps.claim(&order("3"), &rerun()).await) > unknown);
}

pub async fn scopes_types_and_kinds_have_their_own_keys<F: RecordsFixture>(steps: Steps<F>) {
    let identities = [
        Identity::new(tenant("a"), "order", "1").unwrap(),
        Identity::new(tenant("b"), "order", "1").unwrap(),
        Identity::new(Scope::Global, "order", "1").unwrap(),
        Identity::new(tenant("a"), "refund", "1").unwrap(),
        Identity::new(tenant("a"), "order", "2").unwrap(),
        Identity::window(tenant("a"), "order", "1").unwrap(),
        Identity::new(tenant("a"), "ORDER", "1").unwrap(),
        Identity::new(tenant("a"), "order", "1 ").unwrap(),
    ];
    for (number, identity) in identities.iter().enumerate() {
        steps.complete(identity, &number.to_string()).await;
    }
    for (number, identity) in identities.iter().enumerate() {
        let answer = Snapshot::from_bytes(number.to_string());
        assert_eq!(steps.claim(identity, &rerun()).await, Claim::Completed(answer), "{identity}");
    }
}

pub async fn released_key_runs_again_with_a_corrected_request<F: RecordsFixture>(steps: Steps<F>) {
    let first = steps.claimed(&order("1"), &uncertain()).await;
    for _ in 0..2 {
        assert_eq!(steps.settle(&order("1"), first, Outcome::NothingDone).await, Settled::Recorded);
    }
    let corrected = steps.store.claim_record(&order("1"), &request("second"), &rerun()).await.unwrap();
    let second = epoch(corrected);
    assert!(second > first, "the epoch did not grow: {first}, {second}");
    assert_eq!(
        steps.claim(&order("1"), &rerun()).await,
        Claim::Mismatch,
        "the fingerprint is that of the last attempt"
    );
}

pub async fn attempt_in_flight_reports_the_rest_of_its_lease<F: RecordsFixture>(steps: Steps<F>) {
    let terms = Terms { lease: Duration::from_secs(20), ..Terms::new(OnUnknown::Rerun) };
    steps.claimed(&order("1"), &terms).await;
    let claim = steps.claim(&order("1"), &Terms { lease: SHORT, ..rerun() }).await;
    let Claim::InFlight { remaining } = claim else { panic!("{claim:?}") };
    assert!(remaining <= Duration::from_millis(20_010) && remaining > Duration::from_secs(1), "{remaining:?}");
}
