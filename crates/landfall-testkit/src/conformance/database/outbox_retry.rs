//! A message that could not be published: it comes again, and its key waits with it.

use std::time::Duration;

use landfall_core::{Decision, OutboxFilter, OutboxState, OutboxView, Timestamp};

use super::stage::{LONG, SOON};
use super::{DatabaseFixture, Stage};
use crate::conformance::sample::{ids, keyed, keyless, series, sorted, topic};
use crate::eventually;

fn retry(after: Duration) -> Decision {
    Decision::Retry { after, error: "the broker is away".into() }
}

pub async fn a_failing_message_holds_back_its_key_and_only_that_key<F: DatabaseFixture>(stage: Stage<F>) {
    let mut elsewhere = keyed("a", 1);
    elsewhere.topic = topic("payments");
    let (held, free) = (series("a", 2), [keyed("b", 1), keyless(), elsewhere]);
    stage.enqueue(&held).await;
    stage.enqueue(&free).await;
    let leases = stage.lease_all("one").await;
    assert_eq!(stage.settle(&leases, &held[0], retry(LONG)).await.len(), 1);

    assert_eq!(sorted(stage.due_ids(&leases).await), sorted(ids(&free)));

    // One that comes later waits as well.
    stage.enqueue(&[keyed("a", 3)]).await;
    assert_eq!(stage.due_ids(&leases).await.len(), free.len());
    let stats = stage.database.stats().await.unwrap();
    assert_eq!((stats.pending, stats.retrying, stats.parked, stats.published), (5, 1, 0, 0));
}

pub async fn a_failing_message_without_a_key_holds_nobody<F: DatabaseFixture>(stage: Stage<F>) {
    let (failing, free) = (keyless(), [keyless(), keyed("a", 1)]);
    stage.enqueue(std::slice::from_ref(&failing)).await;
    stage.enqueue(&free).await;
    let leases = stage.lease_all("one").await;
    stage.settle(&leases, &failing, retry(LONG)).await;
    assert_eq!(sorted(stage.due_ids(&leases).await), sorted(ids(&free)));
}

pub async fn a_failed_message_is_due_again_before_its_successors<F: DatabaseFixture>(stage: Stage<F>) {
    let messages = series("a", 3);
    stage.enqueue(&messages).await;
    let leases = stage.lease_all("one").await;
    stage.settle(&leases, &messages[0], retry(Duration::from_millis(100))).await;
    eventually(SOON, "the message is due again", async || !stage.due_ids(&leases).await.is_empty()).await;

    let due = stage.due(&leases).await;
    assert_eq!(due.iter().map(|entry| entry.message_id).collect::<Vec<_>>(), ids(&messages));
    assert_eq!(due.iter().map(|entry| entry.attempts).collect::<Vec<_>>(), [1, 0, 0]);

    // Published at last, it holds nobody any more.
    stage.settle(&leases, &messages[0], Decision::Published).await;
    assert_eq!(stage.due_ids(&leases).await, ids(&messages[1..]));
}

pub async fn attempts_and_the_last_error_are_visible<F: DatabaseFixture>(stage: Stage<F>) {
    let message = keyed("a", 1);
    stage.enqueue(std::slice::from_ref(&message)).await;
    let leases = stage.lease_all("one").await;
    stage.settle(&leases, &message, retry(Duration::ZERO)).await;
    eventually(SOON, "the message is due again", async || !stage.due_ids(&leases).await.is_empty()).await;
    let before = Timestamp::now();
    let decision = Decision::Retry { after: LONG, error: "refused: 'quota' \"exceeded\"".into() };
    stage.settle(&leases, &message, decision).await;

    let rows = stage.database.list(&OutboxFilter::default(), 10).await.unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].state, rows[0].attempts), (OutboxState::Retrying, 2));
    assert_eq!(rows[0].last_error.as_deref(), Some("refused: 'quota' \"exceeded\""));
    // The database's clock may differ from ours by a little, on a server elsewhere by more.
    let due_in_s = (rows[0].next_attempt.unwrap().as_millis() - before.as_millis()) / 1000;
    assert!((3300..=3900).contains(&due_in_s), "due in {due_in_s} s instead of 3600");
}

pub async fn a_long_error_is_taken<F: DatabaseFixture>(stage: Stage<F>) {
    let message = keyed("a", 1);
    stage.enqueue(std::slice::from_ref(&message)).await;
    let leases = stage.lease_all("one").await;
    let error = "größer".repeat(100_000);
    assert_eq!(stage.settle(&leases, &message, Decision::Retry { after: LONG, error: error.clone() }).await.len(), 1);
    let rows = stage.database.list(&OutboxFilter::default(), 10).await.unwrap();
    let stored = rows[0].last_error.as_deref().unwrap();
    assert!(!stored.is_empty() && error.starts_with(stored.trim_end_matches('…')), "the beginning is kept");
}
