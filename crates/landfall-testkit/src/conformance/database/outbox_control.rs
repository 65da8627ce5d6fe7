//! What people do to the outbox: try again now, or give up by hand; and what they may not do.

use landfall_core::{
    DeadLetterStatus, Decision, Message, OutboxControl, OutboxFilter, OutboxQueue, OutboxState, OutboxView, RowId,
};

use super::stage::{LONG, SOON, settlement};
use super::{AuditRow, DatabaseFixture, Stage};
use crate::conformance::sample::{ids, keyed, series};
use crate::eventually;

fn put_off() -> Decision {
    Decision::Retry { after: LONG, error: "the broker is full".into() }
}

async fn row<F: DatabaseFixture>(stage: &Stage<F>, message: &Message) -> RowId {
    let found = stage.database.show(message.id).await.unwrap();
    assert_eq!(found.len(), 1, "one row of it");
    found[0].row.row
}

pub async fn a_retry_by_hand_makes_it_due_at_once<F: DatabaseFixture>(stage: Stage<F>) {
    let messages = series("a", 2);
    let other = keyed("b", 1);
    stage.enqueue(&messages).await;
    stage.enqueue(std::slice::from_ref(&other)).await;
    let leases = stage.lease_all("one").await;
    stage.settle(&leases, &messages[0], put_off()).await;
    stage.settle(&leases, &other, put_off()).await;
    assert!(stage.due(&leases).await.is_empty());

    let first = row(&stage, &messages[0]).await;
    assert_eq!(stage.database.retry(&[first], "alice").await.unwrap(), [first]);
    eventually(SOON, "the message is due", async || !stage.due(&leases).await.is_empty()).await;
    let due = stage.due(&leases).await;
    assert_eq!(due.iter().map(|entry| entry.message_id).collect::<Vec<_>>(), ids(&messages), "its key follows it");
    assert_eq!(due.iter().map(|entry| entry.attempts).collect::<Vec<_>>(), [1, 0], "its attempts stay");
    let filter = OutboxFilter { message_id: Some(messages[0].id), ..OutboxFilter::default() };
    assert_eq!(stage.database.list(&filter, 1).await.unwrap()[0].state, OutboxState::Retrying);
}

pub async fn a_retry_by_hand_leaves_alone_what_does_not_wait<F: DatabaseFixture>(stage: Stage<F>) {
    let (pending, retrying, parked) = (keyed("a", 1), keyed("b", 1), keyed("c", 1));
    stage.enqueue(&[pending.clone(), retrying.clone(), parked.clone()]).await;
    let leases = stage.lease_all("one").await;
    stage.settle(&leases, &retrying, put_off()).await;
    stage.settle(&leases, &parked, put_off()).await;
    let parked = row(&stage, &parked).await;
    assert_eq!(stage.database.park(&[parked], "enough", "alice").await.unwrap(), [parked]);
    let audit = stage.audit().await;

    let (pending, retrying) = (row(&stage, &pending).await, row(&stage, &retrying).await);
    assert!(stage.database.retry(&[pending, parked, RowId::MAX], "alice").await.unwrap().is_empty());
    assert!(stage.database.retry(&[], "alice").await.unwrap().is_empty());
    assert_eq!(stage.audit().await, audit, "what changed nothing is not in the audit trail");

    assert_eq!(stage.database.retry(&[pending, retrying, parked], "alice").await.unwrap(), [retrying]);
    eventually(SOON, "the message is due", async || stage.due(&leases).await.len() == 2).await;
    assert!(stage.database.retry(&[retrying], "alice").await.unwrap().is_empty(), "it is due already");
}

pub async fn parking_by_hand_makes_a_dead_letter_and_holds_the_key<F: DatabaseFixture>(stage: Stage<F>) {
    let messages = series("a", 3);
    let free = keyed("b", 1);
    stage.enqueue(&messages).await;
    stage.enqueue(std::slice::from_ref(&free)).await;
    let leases = stage.lease_all("one").await;
    stage.settle(&leases, &messages[0], put_off()).await;
    let first = row(&stage, &messages[0]).await;
    assert_eq!(stage.database.park(&[first], "the customer called", "alice").await.unwrap(), [first]);

    let letter = stage.letter(&messages[0]).await;
    assert_eq!((letter.group, letter.status), (None, DeadLetterStatus::Parked));
    assert_eq!((letter.error_code.as_str(), letter.error.as_str()), ("PARKED_BY_HAND", "the customer called"));
    assert_eq!(letter.payload, messages[0].payload);
    assert_eq!(stage.due_ids(&leases).await, [free.id], "its key waits");
    let stats = stage.database.stats().await.unwrap();
    assert_eq!((stats.pending, stats.retrying, stats.parked), (3, 0, 1));

    stage.redrive(&messages[0]).await;
    let due = stage.due_ids(&leases).await;
    let of_the_key: Vec<_> = due.into_iter().filter(|id| *id != free.id).collect();
    assert_eq!(of_the_key, ids(&messages), "and goes on in order when it is redriven");
}

pub async fn only_what_has_failed_is_parked_by_hand<F: DatabaseFixture>(stage: Stage<F>) {
    let (pending, retrying) = (keyed("a", 1), keyed("b", 1));
    stage.enqueue(&[pending.clone(), retrying.clone()]).await;
    let leases = stage.lease_all("one").await;
    let (first, second) = (row(&stage, &pending).await, row(&stage, &retrying).await);
    assert!(stage.database.park(&[first, second, RowId::MAX], "no", "alice").await.unwrap().is_empty());
    assert!(stage.audit().await.is_empty() && stage.letters().await.is_empty());
    assert_eq!(stage.due_ids(&leases).await.len(), 2);

    stage.settle(&leases, &retrying, put_off()).await;
    assert_eq!(stage.database.park(&[first, second, RowId::MAX], "yes", "alice").await.unwrap(), [second]);
    assert!(stage.database.park(&[second], "again", "alice").await.unwrap().is_empty(), "it is parked already");
    assert_eq!(stage.due_ids(&leases).await, [pending.id]);
    assert_eq!(stage.letters().await.len(), 1);
}

/// The relay had it in its hands when it was parked: its answer comes too late and changes nothing.
pub async fn a_relay_settles_nothing_that_was_parked_by_hand<F: DatabaseFixture>(stage: Stage<F>) {
    let message = keyed("a", 1);
    stage.enqueue(std::slice::from_ref(&message)).await;
    let leases = stage.lease_all("one").await;
    stage.settle(&leases, &message, put_off()).await;
    let row = row(&stage, &message).await;
    stage.database.retry(&[row], "alice").await.unwrap();
    eventually(SOON, "the message is due", async || !stage.due(&leases).await.is_empty()).await;
    let due = stage.due(&leases).await;
    assert_eq!(stage.database.park(&[row], "enough", "alice").await.unwrap(), [row]);

    for decision in [Decision::Published, put_off()] {
        let settled = stage.database.settle(&leases, &[settlement(&due[0], decision)]).await.unwrap();
        assert!(settled.is_empty(), "{settled:?}");
    }
    assert_eq!(stage.letter(&message).await.status, DeadLetterStatus::Parked);
    let stats = stage.database.stats().await.unwrap();
    assert_eq!((stats.pending, stats.retrying, stats.parked, stats.published), (0, 0, 1, 0));
}

pub async fn what_people_do_to_the_outbox_is_in_the_audit_trail<F: DatabaseFixture>(stage: Stage<F>) {
    let (one, two) = (keyed("a", 1), keyed("b", 1));
    stage.enqueue(&[one.clone(), two.clone()]).await;
    let leases = stage.lease_all("one").await;
    stage.settle(&leases, &one, put_off()).await;
    stage.settle(&leases, &two, put_off()).await;
    let rows = [row(&stage, &one).await, row(&stage, &two).await];
    assert_eq!(stage.database.retry(&rows, "alice").await.unwrap(), rows);
    assert_eq!(stage.database.park(&rows[..1], "enough", "bob").await.unwrap(), rows[..1]);

    let entry = |actor: &str, action: &str, message: &Message| AuditRow {
        actor: actor.into(),
        action: action.into(),
        message_id: message.id,
    };
    let expected = [entry("alice", "retry", &one), entry("alice", "retry", &two), entry("bob", "park", &one)];
    assert_eq!(stage.audit().await, expected);
}
