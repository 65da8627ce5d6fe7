//! Half messages: due check-backs, and what follows one that did not decide.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use landfall_core::{
    AfterCheck, Decided, DueCheck, HalfMessage, HalfMessageFilter, HalfMessages, HalfState, MessageId, OutboxView,
    Timestamp,
};

use super::half_steps::{COMMIT, ROLLBACK, due, half};
use super::harness::{LONG, SHORT_WAIT, TIMEOUT};
use super::{DatabaseFixture, Harness};
use crate::conformance::sample::{elaborate, keyed, series, topic};
use crate::eventually;

/// Claims `half`, which is due or soon will be.
async fn claim<F: DatabaseFixture>(harness: &Harness<F>, half: &HalfMessage, lease: Duration) -> DueCheck {
    let mut claimed = Vec::new();
    eventually(TIMEOUT, "the check-back is claimed", async || {
        claimed = harness.database.claim_due(10, lease).await.unwrap();
        !claimed.is_empty()
    })
    .await;
    assert_eq!(claimed.iter().map(|check| check.half.message.id).collect::<Vec<_>>(), [half.message.id]);
    claimed.remove(0)
}

pub async fn nothing_is_checked_during_immunity<F: DatabaseFixture>(harness: Harness<F>) {
    harness.prepare(&half(keyed("a", 1))).await;
    assert!(harness.database.claim_due(10, LONG).await.unwrap().is_empty());
    let soon = HalfMessage { check_after: SHORT_WAIT, ..half(keyed("a", 2)) };
    harness.prepare(&soon).await;
    let check = claim(&harness, &soon, LONG).await;
    let row = harness.half_row(&soon).await;
    assert_eq!((check.checks, row.checks), (0, 0), "a check was spent");
    assert_eq!((check.prepared_at, check.half.check_after), (row.prepared_at, SHORT_WAIT));
}

pub async fn claimed_check_has_the_whole_message<F: DatabaseFixture>(harness: Harness<F>) {
    let half = due(elaborate());
    harness.prepare(&half).await;
    assert_eq!(claim(&harness, &half, LONG).await.half, half);
}

pub async fn check_is_claimed_once_within_its_lease<F: DatabaseFixture>(harness: Harness<F>) {
    let halves: Vec<_> = series("a", 20).into_iter().map(due).collect();
    for half in &halves {
        harness.prepare(half).await;
    }
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let database = harness.second().await;
        tasks.spawn(async move {
            let mut claimed: Vec<MessageId> = Vec::new();
            for _ in 0..20 {
                let step = database.claim_due(3, LONG).await.unwrap();
                assert!(step.len() <= 3);
                claimed.extend(step.iter().map(|check| check.half.message.id));
            }
            claimed
        });
    }
    let mut claimed = tasks.join_all().await.concat();
    eventually(TIMEOUT, "every check-back is claimed", async || {
        claimed.extend(harness.database.claim_due(10, LONG).await.unwrap().iter().map(|check| check.half.message.id));
        claimed.len() >= 20
    })
    .await;
    assert_eq!(claimed.len(), 20, "a check-back was claimed twice");
    assert_eq!(claimed.into_iter().collect::<HashSet<_>>().len(), 20);
}

pub async fn check_can_be_claimed_again_after_its_lease<F: DatabaseFixture>(harness: Harness<F>) {
    let half = due(keyed("a", 1));
    harness.prepare(&half).await;
    claim(&harness, &half, SHORT_WAIT).await;
    assert_eq!(claim(&harness, &half, LONG).await.checks, 0, "a claim without an answer counts as a check");
}

pub async fn longest_due_check_is_claimed_first<F: DatabaseFixture>(harness: Harness<F>) {
    let mut due_at = HashMap::new();
    for (message, after) in series("a", 4).into_iter().zip([60, 20, 0, 40]) {
        let half = HalfMessage { check_after: Duration::from_millis(after), ..half(message) };
        harness.prepare(&half).await;
        due_at.insert(half.message.id, harness.half_row(&half).await.next_check.unwrap());
    }
    let last = due_at.values().max().copied().unwrap();
    eventually(TIMEOUT, "all check-backs are due", async || Timestamp::now() > last).await;
    let mut claimed = Vec::new();
    eventually(TIMEOUT, "all check-backs are claimed", async || {
        let step = harness.database.claim_due(1, LONG).await.unwrap();
        claimed.extend(step.iter().map(|check| due_at[&check.half.message.id]));
        claimed.len() == 4
    })
    .await;
    assert!(claimed.is_sorted(), "{claimed:?}");
}

pub async fn undecided_check_is_repeated_after_its_pause<F: DatabaseFixture>(harness: Harness<F>) {
    let half = due(keyed("a", 1));
    let id = half.message.id;
    harness.prepare(&half).await;
    claim(&harness, &half, LONG).await;
    harness.database.record_check(id, 0, "HTTP 503 \0 é", AfterCheck::Again(Duration::ZERO)).await.unwrap();
    let row = harness.half_row(&half).await;
    assert_eq!((row.checks, row.state), (1, HalfState::Prepared));
    assert!(row.last_answer.unwrap().starts_with("HTTP 503"));
    assert_eq!(claim(&harness, &half, LONG).await.checks, 1);
    harness.database.record_check(id, 1, &"é".repeat(600), AfterCheck::Again(LONG)).await.unwrap();
    assert_eq!(harness.half_row(&half).await.last_answer, Some("é".repeat(500)));
    assert!(harness.database.claim_due(10, LONG).await.unwrap().is_empty(), "checked before the pause ended");
    assert!(harness.audit().await.is_empty(), "a check-back without a change of state was audited");
}

pub async fn stale_check_is_ignored<F: DatabaseFixture>(harness: Harness<F>) {
    let half = due(keyed("a", 1));
    let id = half.message.id;
    harness.prepare(&half).await;
    let again = AfterCheck::Again(LONG);
    harness.database.record_check(id, 0, "first", again).await.unwrap();
    harness.database.record_check(id, 0, "stale", AfterCheck::Park).await.unwrap();
    harness.database.record_check(id, 2, "from the future", AfterCheck::Park).await.unwrap();
    harness.database.record_check(MessageId::new(), 0, "unknown", AfterCheck::Park).await.unwrap();
    let row = harness.half_row(&half).await;
    assert_eq!((row.state, row.checks, row.last_answer.as_deref()), (HalfState::Prepared, 1, Some("first")));
    harness.decide(&half, COMMIT).await;
    harness.database.record_check(id, 1, "too late", AfterCheck::Park).await.unwrap();
    assert_eq!(harness.half_row(&half).await.state, HalfState::Committed);
    assert_eq!(harness.audited().await, [("sender".into(), "half-commit".into())]);
}

pub async fn parked_message_waits_for_a_decision<F: DatabaseFixture>(harness: Harness<F>) {
    for (verdict, pending) in [(ROLLBACK, 0), (COMMIT, 1)] {
        let half = due(keyed("a", 1));
        let id = half.message.id;
        harness.prepare(&half).await;
        claim(&harness, &half, Duration::ZERO).await;
        harness.database.record_check(id, 0, "no answer", AfterCheck::Park).await.unwrap();
        let row = harness.half_row(&half).await;
        assert_eq!((row.state, row.checks, row.next_check), (HalfState::Parked, 1, None));
        assert!(harness.database.claim_due(10, LONG).await.unwrap().is_empty(), "a parked message was claimed");
        assert_eq!(harness.database.half_message_stats().await.unwrap().parked, 1);
        assert_eq!(harness.database.decide(id, verdict, "alice").await.unwrap(), Decided::Now);
        assert_eq!(harness.half_row(&half).await.state, verdict.state());
        assert_eq!(harness.database.stats().await.unwrap().pending, pending);
    }
    let expected = [
        ("check-back", "half-park"),
        ("alice", "half-rollback"),
        ("check-back", "half-park"),
        ("alice", "half-commit"),
    ];
    let expected: Vec<_> = expected.map(|(actor, action)| (actor.to_owned(), action.to_owned())).into();
    assert_eq!(harness.audited().await, expected);
}

pub async fn decided_message_is_not_checked<F: DatabaseFixture>(harness: Harness<F>) {
    for verdict in [COMMIT, ROLLBACK] {
        let half = due(keyed("a", 1));
        harness.prepare(&half).await;
        harness.decide(&half, verdict).await;
        assert!(harness.database.claim_due(10, LONG).await.unwrap().is_empty());
    }
}

pub async fn half_message_filters_return_matching_rows<F: DatabaseFixture>(harness: Harness<F>) {
    let prepared = half(keyed("a", 1));
    let other = HalfMessage {
        business_type: "refund".into(),
        business_id: "7".into(),
        ..half(landfall_core::Message::new(topic("refunds"), "x"))
    };
    let decided = half(keyed("a", 2));
    for half in [&prepared, &other, &decided] {
        harness.prepare(half).await;
    }
    harness.decide(&decided, COMMIT).await;
    harness.decide(&decided, ROLLBACK).await;
    let find = async |filter: HalfMessageFilter| {
        let rows = harness.database.find_half_messages(&filter, 10).await.unwrap();
        rows.into_iter().map(|row| row.id).collect::<HashSet<_>>()
    };
    let ids = |halves: &[&HalfMessage]| halves.iter().map(|half| half.message.id).collect::<HashSet<_>>();
    let any = HalfMessageFilter::default;
    assert_eq!(find(any()).await, ids(&[&prepared, &other, &decided]));
    assert_eq!(find(HalfMessageFilter { id: Some(other.message.id), ..any() }).await, ids(&[&other]));
    assert_eq!(find(HalfMessageFilter { id: Some(MessageId::new()), ..any() }).await, ids(&[]));
    let state = Some(HalfState::Prepared);
    assert_eq!(find(HalfMessageFilter { state, ..any() }).await, ids(&[&prepared, &other]));
    assert_eq!(find(HalfMessageFilter { topic: Some(topic("refunds")), ..any() }).await, ids(&[&other]));
    assert_eq!(find(HalfMessageFilter { business_type: Some("refund".into()), ..any() }).await, ids(&[&other]));
    let business_id = Some(prepared.business_id.clone());
    assert_eq!(find(HalfMessageFilter { business_id, state, ..any() }).await, ids(&[&prepared]));
    assert_eq!(find(HalfMessageFilter { contradicted: true, ..any() }).await, ids(&[&decided]));
}

pub async fn half_message_pages_return_each_row_once<F: DatabaseFixture>(harness: Harness<F>) {
    let halves: Vec<_> = series("a", 7).into_iter().map(half).collect();
    for half in &halves {
        harness.prepare(half).await;
    }
    let (mut found, mut filter) = (Vec::new(), HalfMessageFilter::default());
    loop {
        let page = harness.database.find_half_messages(&filter, 2).await.unwrap();
        assert!(page.windows(2).all(|pair| pair[0].prepared_at >= pair[1].prepared_at), "not the newest first");
        let Some(last) = page.last() else { break };
        filter.before = Some((last.prepared_at, last.id));
        found.extend(page.iter().map(|row| row.id));
    }
    assert_eq!(found.len(), 7);
    assert_eq!(found.into_iter().collect::<HashSet<_>>().len(), 7);
}

pub async fn half_message_counts_are_consistent<F: DatabaseFixture>(harness: Harness<F>) {
    let stats = async || harness.database.half_message_stats().await.unwrap();
    assert_eq!(stats().await, landfall_core::HalfMessageStats::default());
    let (first, second) = (due(keyed("a", 1)), half(keyed("a", 2)));
    harness.prepare(&first).await;
    harness.prepare(&second).await;
    harness.database.record_check(first.message.id, 0, "", AfterCheck::Park).await.unwrap();
    let counts = stats().await;
    assert_eq!((counts.prepared, counts.parked, counts.contradicted, counts.early_commits), (1, 1, 0, 0));
    eventually(TIMEOUT, "the oldest undecided message is a second old", async || {
        stats().await.oldest_undecided_seconds >= 1
    })
    .await;
    harness.decide(&first, COMMIT).await;
    harness.decide(&second, ROLLBACK).await;
    harness.decide(&half(keyed("a", 3)), ROLLBACK).await;
    harness.decide(&half(keyed("a", 4)), COMMIT).await;
    let counts = stats().await;
    assert_eq!((counts.prepared, counts.parked, counts.early_commits), (0, 0, 1));
    assert_eq!(counts.oldest_undecided_seconds, 0);
}
