//! Retries: a message that could not be published is retried, and its key waits for it.

use std::time::Duration;

use landfall_core::adapter::Decision;
use landfall_core::{OutboxFilter, OutboxState, OutboxView, Timestamp};

use super::harness::{LONG, TIMEOUT};
use super::{DatabaseFixture, Harness};
use crate::conformance::sample::{ids, keyed, keyless, series, sorted, topic};
use crate::eventually;

fn retry(after: Duration) -> Decision {
    Decision::Retry { after, error: "the broker is unavailable".into() }
}

pub async fn retrying_message_blocks_only_its_key<F: DatabaseFixture>(harness: Harness<F>) {
    let mut elsewhere = keyed("a", 1);
    elsewhere.topic = topic("payments");
    let (held, free) = (series("a", 2), [keyed("b", 1), keyless(), elsewhere]);
    harness.enqueue(&held).await;
    harness.enqueue(&free).await;
    let leases = harness.lease_all("one").await;
    assert_eq!(harness.settle(&leases, &held[0], retry(LONG)).await.len(), 1);

    assert_eq!(sorted(harness.due_ids(&leases).await), sorted(ids(&free)));

    // A later message of the key waits too.
    harness.enqueue(&[keyed("a", 3)]).await;
    assert_eq!(harness.due_ids(&leases).await.len(), free.len());
    let stats = harness.database.stats().await.unwrap();
    assert_eq!((stats.pending, stats.retrying, stats.parked, stats.published), (5, 1, 0, 0));
}

pub async fn retrying_keyless_message_blocks_nothing<F: DatabaseFixture>(harness: Harness<F>) {
    let (failing, free) = (keyless(), [keyless(), keyed("a", 1)]);
    harness.enqueue(std::slice::from_ref(&failing)).await;
    harness.enqueue(&free).await;
    let leases = harness.lease_all("one").await;
    harness.settle(&leases, &failing, retry(LONG)).await;
    assert_eq!(sorted(harness.due_ids(&leases).await), sorted(ids(&free)));
}

pub async fn retried_message_is_due_before_its_successors<F: DatabaseFixture>(harness: Harness<F>) {
    let messages = series("a", 3);
    harness.enqueue(&messages).await;
    let leases = harness.lease_all("one").await;
    harness.settle(&leases, &messages[0], retry(Duration::from_millis(100))).await;
    eventually(TIMEOUT, "the message is due again", async || !harness.due_ids(&leases).await.is_empty()).await;

    let due = harness.due(&leases).await;
    assert_eq!(due.iter().map(|entry| entry.message_id).collect::<Vec<_>>(), ids(&messages));
    assert_eq!(due.iter().map(|entry| entry.attempts).collect::<Vec<_>>(), [1, 0, 0]);

    // Once published, it no longer blocks its key.
    harness.settle(&leases, &messages[0], Decision::Published).await;
    assert_eq!(harness.due_ids(&leases).await, ids(&messages[1..]));
}

pub async fn attempts_and_the_last_error_are_visible<F: DatabaseFixture>(harness: Harness<F>) {
    let message = keyed("a", 1);
    harness.enqueue(std::slice::from_ref(&message)).await;
    let leases = harness.lease_all("one").await;
    harness.settle(&leases, &message, retry(Duration::ZERO)).await;
    eventually(TIMEOUT, "the message is due again", async || !harness.due_ids(&leases).await.is_empty()).await;
    let before = Timestamp::now();
    let decision = Decision::Retry { after: LONG, error: "refused: 'quota' \"exceeded\"".into() };
    harness.settle(&leases, &message, decision).await;

    let rows = harness.database.list(&OutboxFilter::default(), 10).await.unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].state, rows[0].attempts), (OutboxState::Retrying, 2));
    assert_eq!(rows[0].last_error.as_deref(), Some("refused: 'quota' \"exceeded\""));
    // The clocks of database and test may differ, especially with an external server.
    let due_in_s = (rows[0].next_attempt.unwrap().as_millis() - before.as_millis()) / 1000;
    assert!((3300..=3900).contains(&due_in_s), "due in {due_in_s} s instead of 3600");
}

pub async fn long_error_text_is_accepted<F: DatabaseFixture>(harness: Harness<F>) {
    let message = keyed("a", 1);
    harness.enqueue(std::slice::from_ref(&message)).await;
    let leases = harness.lease_all("one").await;
    let error = "größer".repeat(100_000);
    assert_eq!(harness.settle(&leases, &message, Decision::Retry { after: LONG, error: error.clone() }).await.len(), 1);
    let rows = harness.database.list(&OutboxFilter::default(), 10).await.unwrap();
    let stored = rows[0].last_error.as_deref().unwrap();
    assert!(
        !stored.is_empty() && error.starts_with(stored.trim_end_matches('…')),
        "the stored error is not a prefix of the error"
    );
}
