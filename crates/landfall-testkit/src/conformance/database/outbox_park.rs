//! Messages parked by the relay: a dead letter that holds its key, and its redrive.

use landfall_core::adapter::Decision;
use landfall_core::{Database, Message, OutboxQueue};
use landfall_core::{DeadLetterFilter, DeadLetterStatus, DeadLetters, ErrorCode, ErrorKind, OutboxView};

use super::harness::settlement;
use super::{DatabaseFixture, Harness};
use crate::conformance::sample::{elaborate, ids, key, keyed, keyless, series, sorted, topic};

fn park() -> Decision {
    Decision::Park { code: ErrorCode::TOO_LARGE, error: "the broker accepts at most 10 bytes".into(), holds_key: true }
}

pub async fn parking_creates_a_dead_letter_and_holds_the_key<F: DatabaseFixture>(harness: Harness<F>) {
    let mut successor = keyless();
    let mut elsewhere = keyless();
    let parked = elaborate();
    (successor.topic, successor.key) = (parked.topic.clone(), parked.key.clone());
    (elsewhere.topic, elsewhere.key) = (topic("elsewhere"), parked.key.clone());
    let free = [keyed("b", 1), elsewhere];
    harness.enqueue(&[parked.clone(), successor.clone()]).await;
    harness.enqueue(&free).await;
    let leases = harness.lease_all("one").await;
    assert_eq!(harness.settle(&leases, &parked, park()).await.len(), 1);

    let due = sorted(harness.due_ids(&leases).await);
    assert_eq!(due, sorted(ids(&free)), "not exactly the key of the parked message is held");
    successor.id = landfall_core::MessageId::new();
    harness.enqueue(&[successor]).await;
    assert_eq!(harness.due_ids(&leases).await.len(), free.len(), "a later message of the key passed the parked one");

    let letter = harness.letter(&parked).await;
    assert_eq!((letter.group, letter.status), (None, DeadLetterStatus::Parked));
    assert_eq!((&letter.topic, &letter.key, letter.sequence), (&parked.topic, &parked.key, parked.sequence));
    assert_eq!((letter.kind.as_str(), &letter.payload), (parked.kind.as_str(), &parked.payload));
    assert_eq!(letter.headers.to_string(), parked.headers.to_json());
    assert_eq!((letter.error_code.as_str(), letter.attempts, letter.redrives), ("TOO_LARGE", 1, 0));
    assert_eq!(letter.error, "the broker accepts at most 10 bytes");
    let stats = harness.database.stats().await.unwrap();
    assert_eq!((stats.pending, stats.retrying, stats.parked, stats.published), (4, 0, 1, 0));
}

pub async fn parking_a_keyless_message_blocks_nothing<F: DatabaseFixture>(harness: Harness<F>) {
    let (parked, free) = (keyless(), [keyless(), keyed("a", 1)]);
    harness.enqueue(std::slice::from_ref(&parked)).await;
    harness.enqueue(&free).await;
    let leases = harness.lease_all("one").await;
    harness.settle(&leases, &parked, park()).await;
    assert_eq!(sorted(harness.due_ids(&leases).await), sorted(ids(&free)));
}

pub async fn redriven_message_is_published_before_its_successors<F: DatabaseFixture>(harness: Harness<F>) {
    let mut messages = series("a", 2);
    harness.enqueue(&messages).await;
    let leases = harness.lease_all("one").await;
    harness.settle(&leases, &messages[0], park()).await;
    messages.push(keyed("a", 3));
    harness.enqueue(&messages[2..]).await;
    harness.redrive(&messages[0]).await;

    let due = harness.due(&leases).await;
    assert_eq!(due.iter().map(|entry| entry.attempts).collect::<Vec<_>>(), [0, 0, 0]);
    let due: Vec<Message> = due.into_iter().map(|entry| entry.message.unwrap()).collect();
    assert_eq!(due, messages, "the messages changed or are out of order");
    let letter = harness.letter(&messages[0]).await;
    assert_eq!((letter.status, letter.redrives), (DeadLetterStatus::Done, 1));
    let stats = harness.database.stats().await.unwrap();
    assert_eq!((stats.pending, stats.retrying, stats.parked, stats.published), (3, 0, 0, 0));
}

pub async fn second_redrive_changes_nothing<F: DatabaseFixture>(harness: Harness<F>) {
    let messages = series("a", 2);
    harness.enqueue(&messages).await;
    let leases = harness.lease_all("one").await;
    harness.settle(&leases, &messages[0], park()).await;
    harness.redrive(&messages[0]).await;
    let audit = harness.audit().await;

    let again = harness.database.redrive(&DeadLetterFilter::default(), "alice").await.unwrap();
    assert!(again.redriven.is_empty(), "{again:?}");
    assert_eq!(again.skipped, [harness.letter(&messages[0]).await.id]);
    assert_eq!(harness.due_ids(&leases).await, ids(&messages));
    assert_eq!(harness.letter(&messages[0]).await.redrives, 1);
    assert_eq!(harness.audit().await, audit, "a change without effect was audited");
}

pub async fn redriven_message_can_be_parked_again<F: DatabaseFixture>(harness: Harness<F>) {
    let messages = series("a", 2);
    harness.enqueue(&messages).await;
    let leases = harness.lease_all("one").await;
    harness.settle(&leases, &messages[0], park()).await;
    harness.redrive(&messages[0]).await;
    harness.settle(&leases, &messages[0], park()).await;

    assert_eq!(harness.letter(&messages[0]).await.status, DeadLetterStatus::Parked);
    assert!(harness.due(&leases).await.is_empty(), "the key is not held");
    assert_eq!(harness.database.stats().await.unwrap().parked, 1);

    harness.redrive(&messages[0]).await;
    assert_eq!(harness.due_ids(&leases).await, ids(&messages));
    assert_eq!(harness.letter(&messages[0]).await.redrives, 2);
}

/// The outbox does not deduplicate ids, so one id may have two rows. Neither row may replace the other.
pub async fn rows_with_the_same_id_are_parked_independently<F: DatabaseFixture>(harness: Harness<F>) {
    let orders = keyed("a", 1);
    let mut payments = orders.clone();
    payments.topic = topic("payments");
    harness.enqueue(&[orders.clone(), payments.clone()]).await;
    let leases = harness.lease_all("one").await;
    let due = harness.due(&leases).await;
    let settlements: Vec<_> = due.iter().map(|entry| settlement(entry, park())).collect();
    assert_eq!(harness.database.settle(&leases, &settlements).await.unwrap().len(), 2);
    assert_eq!((harness.letters().await.len(), harness.database.stats().await.unwrap().parked), (2, 2));

    let result = harness.database.redrive(&DeadLetterFilter::default(), "alice").await.unwrap();
    assert_eq!(result.redriven.len(), 2);
    let due: Vec<Message> = harness.due(&leases).await.into_iter().map(|entry| entry.message.unwrap()).collect();
    assert_eq!(due, [orders, payments], "the messages changed");
}

pub async fn unreadable_row_is_an_error_and_can_be_parked<F: DatabaseFixture>(harness: Harness<F>) {
    let mut transaction = harness.database.begin().await.unwrap();
    harness.fixture.insert_unreadable(&mut transaction, &topic("orders"), &key("a")).await;
    harness.database.commit(transaction).await.unwrap();
    harness.enqueue(&[keyed("a", 2), keyed("b", 1)]).await;
    let leases = harness.lease_all("one").await;

    let due = harness.due(&leases).await;
    let (unreadable, readable): (Vec<_>, Vec<_>) = due.into_iter().partition(|entry| entry.message.is_err());
    assert_eq!((unreadable.len(), readable.len()), (1, 2), "an unreadable row hides others");
    let error = unreadable[0].message.as_ref().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");

    let decision = Decision::Park { code: ErrorCode::VALIDATION, error: error.to_string(), holds_key: true };
    let settled = harness.database.settle(&leases, &[settlement(&unreadable[0], decision)]).await.unwrap();
    assert_eq!(settled, [unreadable[0].row]);
    let due = harness.due(&leases).await;
    assert_eq!(due.len(), 1, "the key is not held");
    assert_eq!(due[0].message.as_ref().unwrap().key, Some(key("b")));
    let letters = harness.letters().await;
    assert_eq!(letters.len(), 1);
    assert_eq!((letters[0].message_id, letters[0].status), (unreadable[0].message_id, DeadLetterStatus::Parked));
    assert_eq!(letters[0].headers["x"], "a\nb", "the stored headers are not shown");
}

pub async fn key_is_held_until_all_its_parked_rows_are_redriven<F: DatabaseFixture>(harness: Harness<F>) {
    let messages = series("a", 3);
    harness.enqueue(&messages).await;
    let leases = harness.lease_all("one").await;
    let due = harness.due(&leases).await;
    let settlements: Vec<_> = due[..2].iter().map(|entry| settlement(entry, park())).collect();
    assert_eq!(harness.database.settle(&leases, &settlements).await.unwrap().len(), 2);

    harness.redrive(&messages[1]).await;
    assert!(harness.due(&leases).await.is_empty(), "the key is free although a row is still parked");
    harness.redrive(&messages[0]).await;
    assert_eq!(harness.due_ids(&leases).await, ids(&messages));
}
