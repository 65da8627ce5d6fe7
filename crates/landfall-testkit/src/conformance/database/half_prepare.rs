//! Half messages: storing them, and what a second prepare answers.

use landfall_core::{
    ErrorKind, HalfMessage, HalfMessageFilter, HalfMessages, HalfState, HalfVerdict, Limits, OutboxView, Prepared,
};

use super::half_steps::{COMMIT, FIRST, ROLLBACK, SECOND, half};
use super::{DatabaseFixture, Harness};
use crate::conformance::sample::{elaborate, keyed};

pub async fn prepared_message_is_not_published<F: DatabaseFixture>(harness: Harness<F>) {
    let half = half(keyed("a", 1));
    assert_eq!(harness.prepare(&half).await, Prepared::Fresh(HalfState::Prepared));
    let leases = harness.lease_all("one").await;
    assert!(harness.due(&leases).await.is_empty(), "a prepared message is in the outbox");
    let row = harness.half_row(&half).await;
    assert_eq!((row.state, row.decided_at, row.decided_by), (HalfState::Prepared, None, None));
    assert!(harness.audit().await.is_empty(), "a prepare was audited");
}

pub async fn repeated_prepare_changes_nothing<F: DatabaseFixture>(harness: Harness<F>) {
    let half = half(keyed("a", 1));
    harness.prepare(&half).await;
    let first = harness.half_row(&half).await;
    let again = harness.second().await.prepare(&half, &FIRST).await.unwrap();
    assert_eq!(again, Prepared::Repeated(HalfState::Prepared));
    let second = harness.half_row(&half).await;
    assert_eq!((first.prepared_at, first.next_check), (second.prepared_at, second.next_check));
}

pub async fn another_half_message_under_the_same_id_is_refused<F: DatabaseFixture>(harness: Harness<F>) {
    let first = half(keyed("a", 1));
    harness.prepare(&first).await;
    let other = half(keyed("b", 1).with_id(first.message.id));
    assert_eq!(harness.database.prepare(&other, &SECOND).await.unwrap(), Prepared::Conflict);
    harness.decide(&first, COMMIT).await;
    assert_eq!(harness.database.prepare(&other, &SECOND).await.unwrap(), Prepared::Conflict);
    let leases = harness.lease_all("one").await;
    let due: Vec<_> = harness.due(&leases).await.into_iter().map(|entry| entry.message.unwrap().key).collect();
    assert_eq!(due, [first.message.key], "the refused message replaced the first one");
}

pub async fn prepare_after_the_verdict_returns_it<F: DatabaseFixture>(harness: Harness<F>) {
    for (verdict, state) in [(COMMIT, HalfState::Committed), (ROLLBACK, HalfState::RolledBack)] {
        let half = half(keyed("a", 1));
        harness.prepare(&half).await;
        harness.decide(&half, verdict).await;
        assert_eq!(harness.prepare(&half).await, Prepared::Repeated(state));
        assert_eq!(harness.half_row(&half).await.state, state);
    }
    let leases = harness.lease_all("one").await;
    assert_eq!(harness.due(&leases).await.len(), 1, "the committed message was not enqueued exactly once");
}

pub async fn concurrent_prepares_store_one_message<F: DatabaseFixture>(harness: Harness<F>) {
    let half = half(keyed("a", 1));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let (database, half) = (harness.second().await, half.clone());
        tasks.spawn(async move { database.prepare(&half, &FIRST).await.unwrap() });
    }
    let answers = tasks.join_all().await;
    let fresh = answers.iter().filter(|answer| **answer == Prepared::Fresh(HalfState::Prepared)).count();
    let repeated = answers.iter().filter(|answer| **answer == Prepared::Repeated(HalfState::Prepared)).count();
    assert_eq!((fresh, repeated), (1, 5), "{answers:?}");
}

pub async fn all_message_fields_survive_until_the_commit<F: DatabaseFixture>(harness: Harness<F>) {
    let half = half(elaborate());
    harness.prepare(&half).await;
    let row = harness.half_row(&half).await;
    assert_eq!(row.topic.as_ref(), Some(&half.message.topic));
    assert_eq!(row.key.as_deref(), half.message.key.as_ref().map(|key| key.as_str()));
    assert_eq!(row.kind.as_deref(), Some(half.message.kind.as_str()));
    assert_eq!((&row.business_type, &row.business_id), (&half.business_type, &half.business_id));
    assert_eq!(row.check_back, half.check_back);
    harness.decide(&half, COMMIT).await;
    let leases = harness.lease_all("one").await;
    let due = harness.due(&leases).await;
    assert_eq!(due.len(), 1);
    assert_eq!(due[0].message.as_ref().unwrap(), &half.message);
}

pub async fn all_fields_of_an_early_commit_survive<F: DatabaseFixture>(harness: Harness<F>) {
    let half = half(elaborate());
    harness.decide(&half, HalfVerdict::Committed).await;
    assert_eq!(harness.prepare(&half).await, Prepared::Fresh(HalfState::Committed));
    let leases = harness.lease_all("one").await;
    let due = harness.due(&leases).await;
    assert_eq!(due.len(), 1);
    assert_eq!(due[0].message.as_ref().unwrap(), &half.message);
    assert_eq!(harness.half_row(&half).await.business_id, half.business_id);
}

pub async fn half_message_over_the_limits_is_refused<F: DatabaseFixture>(harness: Harness<F>) {
    let valid = half(keyed("a", 1));
    let large = vec![0; Limits::default().payload_bytes + 1].into();
    let long = "x".repeat(HalfMessage::MAX_BUSINESS_CHARACTERS + 1);
    let target = "x".repeat(HalfMessage::MAX_TARGET_CHARACTERS + 1);
    let check_back = landfall_core::CheckBack { http: Some(target), ..Default::default() };
    let refused = [
        HalfMessage { message: landfall_core::Message { payload: large, ..valid.message.clone() }, ..valid.clone() },
        HalfMessage { business_type: long.clone(), ..valid.clone() },
        HalfMessage { business_id: long, ..valid.clone() },
        HalfMessage { business_id: "a\0b".into(), ..valid.clone() },
        HalfMessage { check_back, ..valid.clone() },
    ];
    for half in &refused {
        let error = harness.database.prepare(half, &FIRST).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    let all = HalfMessageFilter::default();
    assert!(harness.database.find_half_messages(&all, 10).await.unwrap().is_empty());
    let most = "ü".repeat(HalfMessage::MAX_BUSINESS_CHARACTERS);
    let longest = HalfMessage { business_type: most.clone(), business_id: most, ..valid };
    harness.prepare(&longest).await;
    assert_eq!(harness.half_row(&longest).await.business_id, longest.business_id);
    assert_eq!(harness.database.stats().await.unwrap().pending, 0);
}
