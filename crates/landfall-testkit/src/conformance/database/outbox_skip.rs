//! A message that the relay gave up on without holding its key: parked all the same, and its successors overtake it.

use landfall_core::{DeadLetterStatus, Decision, ErrorCode, OutboxQueue, OutboxState, OutboxView};

use super::stage::{LONG, SOON, settlement};
use super::{DatabaseFixture, Stage};
use crate::conformance::sample::{ids, keyed, series};
use crate::eventually;

fn park(holds_key: bool) -> Decision {
    Decision::Park { code: ErrorCode::TOO_LARGE, error: "too large".into(), holds_key }
}

pub async fn a_skipped_message_is_a_dead_letter_and_its_key_goes_on<F: DatabaseFixture>(stage: Stage<F>) {
    let messages = series("a", 3);
    stage.enqueue(&messages).await;
    let leases = stage.lease_all("one").await;
    assert_eq!(stage.settle(&leases, &messages[0], park(false)).await.len(), 1);
    assert_eq!(stage.due_ids(&leases).await, ids(&messages[1..]), "its successors go on");
    stage.enqueue(&[keyed("a", 4)]).await;
    assert_eq!(stage.due(&leases).await.len(), 3, "and so do later ones");

    let letter = stage.letter(&messages[0]).await;
    assert_eq!(
        (letter.group, letter.status, letter.error_code.as_str()),
        (None, DeadLetterStatus::Parked, "TOO_LARGE")
    );
    let shown = stage.database.show(messages[1].id).await.unwrap();
    assert_eq!(shown[0].row.state, OutboxState::Pending, "nobody waits behind it");
    let stats = stage.database.stats().await.unwrap();
    assert_eq!((stats.pending, stats.retrying, stats.parked), (3, 0, 1));
}

/// The last try of a message that was put off before.
pub async fn a_message_that_is_skipped_after_retries_frees_its_key<F: DatabaseFixture>(stage: Stage<F>) {
    let messages = series("a", 2);
    stage.enqueue(&messages).await;
    let leases = stage.lease_all("one").await;
    let due = stage.due(&leases).await;
    stage.settle(&leases, &messages[0], Decision::Retry { after: LONG, error: "full".into() }).await;
    assert!(stage.due(&leases).await.is_empty());
    // The relay knows the row, whether or not it would be given it now.
    stage.database.settle(&leases, &[settlement(&due[0], park(false))]).await.unwrap();
    eventually(SOON, "the key goes on", async || stage.due_ids(&leases).await == ids(&messages[1..])).await;
}

pub async fn a_skipped_message_goes_out_when_it_is_redriven<F: DatabaseFixture>(stage: Stage<F>) {
    let messages = series("a", 2);
    stage.enqueue(&messages).await;
    let leases = stage.lease_all("one").await;
    stage.settle(&leases, &messages[0], park(false)).await;
    stage.settle(&leases, &messages[1], Decision::Published).await;
    assert!(stage.due(&leases).await.is_empty());

    stage.redrive(&messages[0]).await;
    assert_eq!(stage.due_ids(&leases).await, [messages[0].id]);
    stage.settle(&leases, &messages[0], Decision::Published).await;
    let stats = stage.database.stats().await.unwrap();
    assert_eq!((stats.pending, stats.parked, stats.published), (0, 0, 2));
}

pub async fn a_skipped_message_holds_no_key_that_another_lets_go<F: DatabaseFixture>(stage: Stage<F>) {
    let messages = series("a", 3);
    stage.enqueue(&messages).await;
    let leases = stage.lease_all("one").await;
    stage.settle(&leases, &messages[0], park(false)).await;
    stage.settle(&leases, &messages[1], park(true)).await;
    assert!(stage.due(&leases).await.is_empty(), "the second one holds the key");
    stage.redrive(&messages[1]).await;
    assert_eq!(stage.due_ids(&leases).await, ids(&messages[1..]), "the first one, still parked, does not");
}

pub async fn redriving_a_skipped_message_frees_no_key_of_another<F: DatabaseFixture>(stage: Stage<F>) {
    let messages = series("a", 3);
    stage.enqueue(&messages).await;
    let leases = stage.lease_all("one").await;
    stage.settle(&leases, &messages[0], park(false)).await;
    stage.settle(&leases, &messages[1], park(true)).await;
    stage.redrive(&messages[0]).await;
    assert!(stage.due(&leases).await.is_empty(), "its key is held, so it waits like the others");
    stage.redrive(&messages[1]).await;
    assert_eq!(stage.due_ids(&leases).await, ids(&messages));
}
