//! Skipped messages: parked without holding their key, so that successors overtake them.

use landfall_core::adapter::Decision;
use landfall_core::{DeadLetterStatus, ErrorCode, OutboxQueue, OutboxState, OutboxView};

use super::harness::{LONG, TIMEOUT, settlement};
use super::{DatabaseFixture, Harness};
use crate::conformance::sample::{ids, keyed, series};
use crate::eventually;

fn park(holds_key: bool) -> Decision {
    Decision::Park { code: ErrorCode::TOO_LARGE, error: "too large".into(), holds_key }
}

pub async fn skipped_message_is_parked_without_holding_its_key<F: DatabaseFixture>(harness: Harness<F>) {
    let messages = series("a", 3);
    harness.enqueue(&messages).await;
    let leases = harness.lease_all("one").await;
    assert_eq!(harness.settle(&leases, &messages[0], park(false)).await.len(), 1);
    assert_eq!(harness.due_ids(&leases).await, ids(&messages[1..]), "the successors are not due");
    harness.enqueue(&[keyed("a", 4)]).await;
    assert_eq!(harness.due(&leases).await.len(), 3, "a later message is not due");

    let letter = harness.letter(&messages[0]).await;
    assert_eq!(
        (letter.group, letter.status, letter.error_code.as_str()),
        (None, DeadLetterStatus::Parked, "TOO_LARGE")
    );
    let shown = harness.database.show(messages[1].id).await.unwrap();
    assert_eq!(shown[0].row.state, OutboxState::Pending, "a successor waits behind the skipped message");
    let stats = harness.database.stats().await.unwrap();
    assert_eq!((stats.pending, stats.retrying, stats.parked), (3, 0, 1));
}

/// The last attempt of a message that was retried before.
pub async fn skipping_after_retries_frees_the_key<F: DatabaseFixture>(harness: Harness<F>) {
    let messages = series("a", 2);
    harness.enqueue(&messages).await;
    let leases = harness.lease_all("one").await;
    let due = harness.due(&leases).await;
    harness.settle(&leases, &messages[0], Decision::Retry { after: LONG, error: "full".into() }).await;
    assert!(harness.due(&leases).await.is_empty());
    // The relay settles the row by id, although it is not due.
    harness.database.settle(&leases, &[settlement(&due[0], park(false))]).await.unwrap();
    eventually(TIMEOUT, "the successor is due", async || harness.due_ids(&leases).await == ids(&messages[1..])).await;
}

pub async fn skipped_message_is_published_when_redriven<F: DatabaseFixture>(harness: Harness<F>) {
    let messages = series("a", 2);
    harness.enqueue(&messages).await;
    let leases = harness.lease_all("one").await;
    harness.settle(&leases, &messages[0], park(false)).await;
    harness.settle(&leases, &messages[1], Decision::Published).await;
    assert!(harness.due(&leases).await.is_empty());

    harness.redrive(&messages[0]).await;
    assert_eq!(harness.due_ids(&leases).await, [messages[0].id]);
    harness.settle(&leases, &messages[0], Decision::Published).await;
    let stats = harness.database.stats().await.unwrap();
    assert_eq!((stats.pending, stats.parked, stats.published), (0, 0, 2));
}

pub async fn skipped_message_does_not_keep_a_key_held<F: DatabaseFixture>(harness: Harness<F>) {
    let messages = series("a", 3);
    harness.enqueue(&messages).await;
    let leases = harness.lease_all("one").await;
    harness.settle(&leases, &messages[0], park(false)).await;
    harness.settle(&leases, &messages[1], park(true)).await;
    assert!(harness.due(&leases).await.is_empty(), "the second message does not hold the key");
    harness.redrive(&messages[1]).await;
    assert_eq!(harness.due_ids(&leases).await, ids(&messages[1..]), "the skipped message holds the key");
}

pub async fn redriving_a_skipped_message_does_not_free_a_held_key<F: DatabaseFixture>(harness: Harness<F>) {
    let messages = series("a", 3);
    harness.enqueue(&messages).await;
    let leases = harness.lease_all("one").await;
    harness.settle(&leases, &messages[0], park(false)).await;
    harness.settle(&leases, &messages[1], park(true)).await;
    harness.redrive(&messages[0]).await;
    assert!(harness.due(&leases).await.is_empty(), "a redriven message passed the held key");
    harness.redrive(&messages[1]).await;
    assert_eq!(harness.due_ids(&leases).await, ids(&messages));
}
