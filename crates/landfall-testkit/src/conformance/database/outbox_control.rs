//! Manual operations on the outbox: retry and park, and their limits.

use landfall_core::adapter::Decision;
use landfall_core::{
    DeadLetterStatus, Message, OutboxControl, OutboxFilter, OutboxQueue, OutboxState, OutboxView, RowId,
};

use super::harness::{LONG, TIMEOUT, settlement};
use super::{AuditRow, DatabaseFixture, Harness};
use crate::conformance::sample::{ids, keyed, series};
use crate::eventually;

fn retry_later() -> Decision {
    Decision::Retry { after: LONG, error: "the broker is full".into() }
}

async fn row<F: DatabaseFixture>(harness: &Harness<F>, message: &Message) -> RowId {
    let found = harness.database.show(message.id).await.unwrap();
    assert_eq!(found.len(), 1, "the message has more than one row");
    found[0].row.row
}

pub async fn manual_retry_makes_the_message_due<F: DatabaseFixture>(harness: Harness<F>) {
    let messages = series("a", 2);
    let other = keyed("b", 1);
    harness.enqueue(&messages).await;
    harness.enqueue(std::slice::from_ref(&other)).await;
    let leases = harness.lease_all("one").await;
    harness.settle(&leases, &messages[0], retry_later()).await;
    harness.settle(&leases, &other, retry_later()).await;
    assert!(harness.due(&leases).await.is_empty());

    let first = row(&harness, &messages[0]).await;
    assert_eq!(harness.database.retry(&[first], "alice").await.unwrap(), [first]);
    eventually(TIMEOUT, "the message is due", async || !harness.due(&leases).await.is_empty()).await;
    let due = harness.due(&leases).await;
    assert_eq!(
        due.iter().map(|entry| entry.message_id).collect::<Vec<_>>(),
        ids(&messages),
        "the key is not due in order"
    );
    assert_eq!(due.iter().map(|entry| entry.attempts).collect::<Vec<_>>(), [1, 0], "the attempts changed");
    let filter = OutboxFilter { message_id: Some(messages[0].id), ..OutboxFilter::default() };
    assert_eq!(harness.database.list(&filter, 1).await.unwrap()[0].state, OutboxState::Retrying);
}

pub async fn manual_retry_affects_only_waiting_messages<F: DatabaseFixture>(harness: Harness<F>) {
    let (pending, retrying, parked) = (keyed("a", 1), keyed("b", 1), keyed("c", 1));
    harness.enqueue(&[pending.clone(), retrying.clone(), parked.clone()]).await;
    let leases = harness.lease_all("one").await;
    harness.settle(&leases, &retrying, retry_later()).await;
    harness.settle(&leases, &parked, retry_later()).await;
    let parked = row(&harness, &parked).await;
    assert_eq!(harness.database.park(&[parked], "enough", "alice").await.unwrap(), [parked]);
    let audit = harness.audit().await;

    let (pending, retrying) = (row(&harness, &pending).await, row(&harness, &retrying).await);
    assert!(harness.database.retry(&[pending, parked, RowId::MAX], "alice").await.unwrap().is_empty());
    assert!(harness.database.retry(&[], "alice").await.unwrap().is_empty());
    assert_eq!(harness.audit().await, audit, "a change without effect was audited");

    assert_eq!(harness.database.retry(&[pending, retrying, parked], "alice").await.unwrap(), [retrying]);
    eventually(TIMEOUT, "the message is due", async || harness.due(&leases).await.len() == 2).await;
    assert!(harness.database.retry(&[retrying], "alice").await.unwrap().is_empty(), "a due message was retried");
}

pub async fn manual_park_creates_a_dead_letter_and_holds_the_key<F: DatabaseFixture>(harness: Harness<F>) {
    let messages = series("a", 3);
    let free = keyed("b", 1);
    harness.enqueue(&messages).await;
    harness.enqueue(std::slice::from_ref(&free)).await;
    let leases = harness.lease_all("one").await;
    harness.settle(&leases, &messages[0], retry_later()).await;
    let first = row(&harness, &messages[0]).await;
    assert_eq!(harness.database.park(&[first], "the customer called", "alice").await.unwrap(), [first]);

    let letter = harness.letter(&messages[0]).await;
    assert_eq!((letter.group, letter.status), (None, DeadLetterStatus::Parked));
    assert_eq!((letter.error_code.as_str(), letter.error.as_str()), ("PARKED_BY_HAND", "the customer called"));
    assert_eq!(letter.payload, messages[0].payload);
    assert_eq!(harness.due_ids(&leases).await, [free.id], "the key is not held");
    let stats = harness.database.stats().await.unwrap();
    assert_eq!((stats.pending, stats.retrying, stats.parked), (3, 0, 1));

    harness.redrive(&messages[0]).await;
    let due = harness.due_ids(&leases).await;
    let of_key: Vec<_> = due.into_iter().filter(|id| *id != free.id).collect();
    assert_eq!(of_key, ids(&messages), "the redriven key is out of order");
}

pub async fn manual_park_accepts_only_failed_messages<F: DatabaseFixture>(harness: Harness<F>) {
    let (pending, retrying) = (keyed("a", 1), keyed("b", 1));
    harness.enqueue(&[pending.clone(), retrying.clone()]).await;
    let leases = harness.lease_all("one").await;
    let (first, second) = (row(&harness, &pending).await, row(&harness, &retrying).await);
    assert!(harness.database.park(&[first, second, RowId::MAX], "no", "alice").await.unwrap().is_empty());
    assert!(harness.audit().await.is_empty() && harness.letters().await.is_empty());
    assert_eq!(harness.due_ids(&leases).await.len(), 2);

    harness.settle(&leases, &retrying, retry_later()).await;
    assert_eq!(harness.database.park(&[first, second, RowId::MAX], "yes", "alice").await.unwrap(), [second]);
    assert!(
        harness.database.park(&[second], "again", "alice").await.unwrap().is_empty(),
        "a parked message was parked again"
    );
    assert_eq!(harness.due_ids(&leases).await, [pending.id]);
    assert_eq!(harness.letters().await.len(), 1);
}

/// The message was in flight in the relay when it was parked: the late settlement changes nothing.
pub async fn relay_cannot_settle_a_manually_parked_message<F: DatabaseFixture>(harness: Harness<F>) {
    let message = keyed("a", 1);
    harness.enqueue(std::slice::from_ref(&message)).await;
    let leases = harness.lease_all("one").await;
    harness.settle(&leases, &message, retry_later()).await;
    let row = row(&harness, &message).await;
    harness.database.retry(&[row], "alice").await.unwrap();
    eventually(TIMEOUT, "the message is due", async || !harness.due(&leases).await.is_empty()).await;
    let due = harness.due(&leases).await;
    assert_eq!(harness.database.park(&[row], "enough", "alice").await.unwrap(), [row]);

    for decision in [Decision::Published, retry_later()] {
        let settled = harness.database.settle(&leases, &[settlement(&due[0], decision)]).await.unwrap();
        assert!(settled.is_empty(), "{settled:?}");
    }
    assert_eq!(harness.letter(&message).await.status, DeadLetterStatus::Parked);
    let stats = harness.database.stats().await.unwrap();
    assert_eq!((stats.pending, stats.retrying, stats.parked, stats.published), (0, 0, 1, 0));
}

pub async fn manual_outbox_actions_are_audited<F: DatabaseFixture>(harness: Harness<F>) {
    let (one, two) = (keyed("a", 1), keyed("b", 1));
    harness.enqueue(&[one.clone(), two.clone()]).await;
    let leases = harness.lease_all("one").await;
    harness.settle(&leases, &one, retry_later()).await;
    harness.settle(&leases, &two, retry_later()).await;
    let rows = [row(&harness, &one).await, row(&harness, &two).await];
    assert_eq!(harness.database.retry(&rows, "alice").await.unwrap(), rows);
    assert_eq!(harness.database.park(&rows[..1], "enough", "bob").await.unwrap(), rows[..1]);

    let entry = |actor: &str, action: &str, message: &Message| AuditRow {
        actor: actor.into(),
        action: action.into(),
        message_id: message.id,
    };
    harness.database.record_action("carol", "purge", "sent longer ago than 7d").await.unwrap();
    let nil = "00000000-0000-0000-0000-000000000000".parse().unwrap();
    let purge = AuditRow { actor: "carol".into(), action: "purge".into(), message_id: nil };
    let by_row = [entry("alice", "retry", &one), entry("alice", "retry", &two), entry("bob", "park", &one)];
    assert_eq!(harness.audit().await, by_row.into_iter().chain([purge]).collect::<Vec<_>>());
}
