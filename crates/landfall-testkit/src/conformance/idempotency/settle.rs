//! Outcomes: recorded once, unknown ones by policy, and resolved by a person.

use landfall_core::idempotency::{
    Body, Claim, IdempotencyRecords, OnUnknown, Outcome, RecordFilter, RecordState, Resolution, Settled, Snapshot,
};

use super::fixture::{done, epoch, order, rerun, uncertain};
use super::{RecordsFixture, Steps};

pub async fn repeated_settle_is_recorded_once<F: RecordsFixture>(steps: Steps<F>) {
    let first = steps.claimed(&order("1"), &rerun()).await;
    for _ in 0..2 {
        assert_eq!(steps.settle(&order("1"), first, done("1")).await, Settled::Recorded);
    }
    // Another outcome is no repeat.
    let answer = Snapshot::from_bytes("1");
    for outcome in [Outcome::NothingDone, Outcome::Unknown("no".into())] {
        assert_eq!(steps.settle(&order("1"), first, outcome).await, Settled::Lost(Some(answer.clone())));
    }
    assert_eq!(steps.claim(&order("1"), &rerun()).await, Claim::Completed(answer));
}

pub async fn unknown_outcome_follows_the_policy<F: RecordsFixture>(steps: Steps<F>) {
    let parked = steps.claimed(&order("parked"), &uncertain()).await;
    assert_eq!(steps.settle(&order("parked"), parked, Outcome::Unknown("why".into())).await, Settled::Recorded);
    assert_eq!(steps.claim(&order("parked"), &rerun()).await, Claim::Uncertain);
    let filter = RecordFilter { state: Some(RecordState::Uncertain), ..RecordFilter::default() };
    let found = steps.store.find_records(&filter, 10).await.unwrap();
    assert_eq!((found.len(), found[0].reason.as_deref()), (1, Some("why")), "{found:?}");

    let again = steps.claimed(&order("again"), &rerun()).await;
    assert_eq!(steps.settle(&order("again"), again, Outcome::Unknown("why".into())).await, Settled::Recorded);
    assert!(epoch(steps.claim(&order("again"), &rerun()).await) > again);
}

pub async fn answer_without_a_body_is_known_as_done<F: RecordsFixture>(steps: Steps<F>) {
    let headers = vec![("location".to_owned(), "/1".to_owned())];
    let large = Snapshot::new(201, headers.clone(), vec![b'x'; Snapshot::MAX_BODY_BYTES + 1]);
    assert_eq!(large.body, Body::NotKept);
    let largest = Snapshot::new(200, Vec::new(), vec![b'x'; Snapshot::MAX_BODY_BYTES]);
    for (key, answer) in [("large", large), ("largest", largest)] {
        let first = steps.claimed(&order(key), &rerun()).await;
        assert_eq!(steps.settle(&order(key), first, Outcome::Done(answer.clone())).await, Settled::Recorded);
        assert_eq!(steps.claim(&order(key), &rerun()).await, Claim::Completed(answer));
    }
}

pub async fn person_resolves_an_uncertain_record<F: RecordsFixture>(steps: Steps<F>) {
    for key in ["done", "rerun"] {
        let first = steps.claimed(&order(key), &uncertain()).await;
        steps.settle(&order(key), first, Outcome::Unknown("lost".into())).await;
    }
    let crashed = order("crashed");
    steps.abandon(&crashed, OnUnknown::Uncertain).await;
    let resolve = async |key: &str, resolution: Resolution| {
        steps.store.resolve_record(order(key).id(), &resolution, "ann").await.unwrap()
    };
    let answer = Snapshot::new(201, vec![("location".into(), "/1".into())], "seen");
    assert!(resolve("done", Resolution::Done(answer.clone())).await);
    assert!(resolve("rerun", Resolution::Rerun).await);
    assert!(resolve("crashed", Resolution::Rerun).await);
    for key in ["done", "rerun", "crashed", "never"] {
        assert!(!resolve(key, Resolution::Rerun).await, "{key} was resolved twice, or does not exist");
    }
    assert_eq!(steps.claim(&order("done"), &rerun()).await, Claim::Completed(answer));
    for key in ["rerun", "crashed"] {
        epoch(steps.claim(&order(key), &rerun()).await);
        assert!(!resolve(key, Resolution::Rerun).await, "an attempt in flight was resolved");
    }
    let found = steps.store.find_records(&RecordFilter::default(), 10).await.unwrap();
    let done = found.iter().find(|row| row.key == "done").unwrap();
    assert_eq!(done.reason.as_deref(), Some("resolved by ann"));
}

pub async fn resolved_attempt_can_settle_no_more<F: RecordsFixture>(steps: Steps<F>) {
    for (key, resolution) in [("1", Resolution::Rerun), ("2", Resolution::Done(Snapshot::from_bytes("seen")))] {
        let first = steps.claimed(&order(key), &uncertain()).await;
        steps.settle(&order(key), first, Outcome::Unknown("lost".into())).await;
        assert!(steps.store.resolve_record(order(key).id(), &resolution, "ann").await.unwrap());
        let expected = match resolution {
            Resolution::Done(answer) => Some(answer),
            Resolution::Rerun => None,
        };
        assert_eq!(steps.settle(&order(key), first, done("late")).await, Settled::Lost(expected));
        assert_eq!(steps.store.renew_record(&order(key), first, super::fixture::SHORT).await.unwrap(), None);
    }
}
