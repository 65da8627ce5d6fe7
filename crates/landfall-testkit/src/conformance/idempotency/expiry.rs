//! Retention: first the answer goes, then the key, and never what waits for a person.

use landfall_core::idempotency::{
    Body, Claim, IdempotencyRecords, OnUnknown, Outcome, RecordFilter, RecordState, Snapshot,
};

use super::fixture::{order, rerun, uncertain};
use super::{RecordsFixture, Steps};

pub async fn expired_answer_is_known_as_done<F: RecordsFixture>(steps: Steps<F>) {
    steps.complete(&order("1"), "secret").await;
    steps.claimed(&order("2"), &rerun()).await;
    assert!(matches!(steps.fixture.expire_answers(&steps.store).await, None | Some(1)));
    let expired = Snapshot { status: 200, headers: Vec::new(), body: Body::Expired };
    for _ in 0..2 {
        assert_eq!(steps.claim(&order("1"), &rerun()).await, Claim::Completed(expired.clone()));
    }
    assert!(matches!(steps.fixture.expire_answers(&steps.store).await, None | Some(0)));
    let other = steps.store.claim_record(&order("1"), &super::fixture::request("second"), &rerun()).await.unwrap();
    assert_eq!(other, Claim::Mismatch, "the fingerprint has expired with the answer");
}

pub async fn expired_key_runs_again_under_a_higher_epoch<F: RecordsFixture>(steps: Steps<F>) {
    let first = steps.complete(&order("1"), "1").await;
    let released = steps.claimed(&order("2"), &uncertain()).await;
    steps.settle(&order("2"), released, Outcome::NothingDone).await;
    let crashed = steps.abandon(&order("3"), OnUnknown::Rerun).await;
    assert!(matches!(steps.fixture.expire_records(&steps.store).await, None | Some(3)));
    assert_eq!(steps.store.find_records(&RecordFilter::default(), 10).await.unwrap(), []);
    for (key, earlier) in [("1", first), ("2", released), ("3", crashed)] {
        let next = steps.claimed(&order(key), &rerun()).await;
        assert!(next > earlier, "key {key} has epoch {next} after {earlier}");
        let late = steps.settle(&order(key), earlier, super::fixture::done("late")).await;
        assert_eq!(late, landfall_core::idempotency::Settled::Lost(None), "a removed attempt has settled");
    }
}

pub async fn open_and_uncertain_records_do_not_expire<F: RecordsFixture>(steps: Steps<F>) {
    steps.claimed(&order("open"), &rerun()).await;
    let unknown = steps.claimed(&order("unknown"), &uncertain()).await;
    steps.settle(&order("unknown"), unknown, Outcome::Unknown("lost".into())).await;
    steps.abandon(&order("crashed"), OnUnknown::Uncertain).await;
    assert!(matches!(steps.fixture.expire_records(&steps.store).await, None | Some(0)));
    assert!(matches!(steps.claim(&order("open"), &rerun()).await, Claim::InFlight { .. }));
    for key in ["unknown", "crashed"] {
        assert_eq!(steps.claim(&order(key), &rerun()).await, Claim::Uncertain);
    }
    let filter = RecordFilter { state: Some(RecordState::Uncertain), ..RecordFilter::default() };
    assert_eq!(steps.store.find_records(&filter, 10).await.unwrap().len(), 2);
}
