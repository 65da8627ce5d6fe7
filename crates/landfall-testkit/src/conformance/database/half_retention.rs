//! Half messages: which are removed, and when.

use std::time::Duration;

use landfall_core::{AfterCheck, Expiring, HalfMessages, HalfState, Housekeeping, Key, Message, OutboxView, Prepared};

use super::half_steps::{COMMIT, ROLLBACK, due, half};
use super::harness::{LONG, TIMEOUT};
use super::{DatabaseFixture, Harness};
use crate::conformance::sample::{keyed, series};
use crate::eventually;

/// Removes in steps of two until `count` are removed.
async fn remove<F: DatabaseFixture>(harness: &Harness<F>, count: u64) {
    let mut removed = 0;
    eventually(TIMEOUT, "the half messages are removed", async || {
        let step = harness.database.remove_expired(Expiring::HalfMessages, Duration::ZERO, 2).await.unwrap();
        assert!(step <= 2, "a step removed too many half messages: {step}");
        removed += step;
        removed >= count
    })
    .await;
    assert_eq!(removed, count);
}

pub async fn decided_half_messages_are_removed_after_retention<F: DatabaseFixture>(harness: Harness<F>) {
    let halves: Vec<_> = series("a", 4).into_iter().map(half).collect();
    for (number, half) in halves.iter().enumerate() {
        harness.prepare(half).await;
        harness.decide(half, if number % 2 == 0 { COMMIT } else { ROLLBACK }).await;
    }
    harness.decide(&half(keyed("b", 1)), COMMIT).await;
    let early = harness.database.remove_expired(Expiring::HalfMessages, LONG, 100).await.unwrap();
    assert_eq!(early, 0, "half messages were removed before their retention ended");
    remove(&harness, 5).await;
    assert_eq!(harness.database.stats().await.unwrap().pending, 2, "a committed message was removed");
    assert_eq!(harness.prepare(&halves[0]).await, Prepared::Fresh(HalfState::Prepared));
}

pub async fn undecided_half_messages_are_kept<F: DatabaseFixture>(harness: Harness<F>) {
    let (prepared, parked, decided) = (half(keyed("a", 1)), due(keyed("a", 2)), half(keyed("a", 3)));
    for half in [&prepared, &parked, &decided] {
        harness.prepare(half).await;
    }
    harness.database.record_check(parked.message.id, 0, "", AfterCheck::Park).await.unwrap();
    harness.decide(&decided, ROLLBACK).await;
    remove(&harness, 1).await;
    assert_eq!(harness.half_row(&prepared).await.state, HalfState::Prepared);
    assert_eq!(harness.half_row(&parked).await.state, HalfState::Parked);
}

pub async fn contradicted_half_message_is_kept_until_acknowledged<F: DatabaseFixture>(harness: Harness<F>) {
    let (contradicted, decided) = (half(keyed("a", 1)), half(keyed("a", 2)));
    for half in [&contradicted, &decided] {
        harness.prepare(half).await;
        harness.decide(half, COMMIT).await;
    }
    harness.decide(&contradicted, ROLLBACK).await;
    remove(&harness, 1).await;
    assert_eq!(harness.half_row(&contradicted).await.state, HalfState::Committed);
    assert!(harness.database.acknowledge_contradiction(contradicted.message.id, "alice").await.unwrap());
    remove(&harness, 1).await;
}

pub async fn old_half_messages_can_be_archived_before_removal<F: DatabaseFixture>(harness: Harness<F>) {
    let halves: Vec<_> = series("a", 3).into_iter().map(half).collect();
    for half in &halves {
        harness.prepare(half).await;
    }
    let (committed, contradicted, undecided) = (&halves[0], &halves[1], &halves[2]);
    harness.decide(committed, COMMIT).await;
    harness.decide(contradicted, COMMIT).await;
    harness.decide(contradicted, ROLLBACK).await;
    let early = half(keyed("b", 1));
    harness.decide(&early, ROLLBACK).await;
    assert!(harness.database.old_half_messages(LONG, 10).await.unwrap().is_empty(), "it is not old yet");

    let mut old = Vec::new();
    eventually(TIMEOUT, "old half messages", async || {
        old = harness.database.old_half_messages(Duration::ZERO, 10).await.unwrap();
        old.len() == 2
    })
    .await;
    assert_eq!(harness.database.old_half_messages(Duration::ZERO, 1).await.unwrap().len(), 1);
    let archived = old.iter().find(|detail| detail.row.id == committed.message.id).expect("the committed one");
    let Message { topic, key, kind, payload, headers, .. } = &committed.message;
    assert_eq!(archived.row.topic.as_ref(), Some(topic));
    assert_eq!(
        (archived.row.key.as_deref(), archived.row.kind.as_deref()),
        (key.as_ref().map(Key::as_str), Some(kind.as_str()))
    );
    assert_eq!(archived.payload.as_ref(), Some(payload));
    assert_eq!(
        archived.headers.as_ref().and_then(|stored| stored.as_object()).map(|object| object.len()),
        Some(headers.iter().count())
    );
    assert_eq!((archived.row.state, archived.row.decided_by.as_deref()), (HalfState::Committed, Some("sender")));
    let archived = old.iter().find(|detail| detail.row.id == early.message.id).expect("the early one");
    assert_eq!((&archived.row.topic, &archived.payload), (&None, &None));

    // Ids that may not be removed are ignored, and so is a second removal.
    let ids: Vec<_> = halves.iter().chain([&early]).map(|half| half.message.id).collect();
    assert_eq!(harness.database.remove_these_half_messages(&ids).await.unwrap(), 2);
    assert_eq!(harness.database.remove_these_half_messages(&ids).await.unwrap(), 0);
    assert_eq!(harness.half_row(contradicted).await.state, HalfState::Committed);
    assert_eq!(harness.half_row(undecided).await.state, HalfState::Prepared);
    assert_eq!(harness.database.stats().await.unwrap().pending, 2, "a committed message was removed");
}
