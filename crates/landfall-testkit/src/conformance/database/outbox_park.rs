//! A message that the relay gave up on: a dead letter that holds its key, and its way back.

use landfall_core::{Database, Message, OutboxQueue};
use landfall_core::{DeadLetterFilter, DeadLetterStatus, DeadLetters, Decision, ErrorCode, ErrorKind, OutboxView};

use super::stage::settlement;
use super::{DatabaseFixture, Stage};
use crate::conformance::sample::{elaborate, ids, key, keyed, keyless, series, sorted, topic};

fn park() -> Decision {
    Decision::Park {
        code: ErrorCode::TOO_LARGE,
        error: "the broker takes no more than 10 bytes".into(),
        holds_key: true,
    }
}

pub async fn parking_makes_a_dead_letter_and_holds_the_key<F: DatabaseFixture>(stage: Stage<F>) {
    let mut successor = keyless();
    let mut elsewhere = keyless();
    let parked = elaborate();
    (successor.topic, successor.key) = (parked.topic.clone(), parked.key.clone());
    (elsewhere.topic, elsewhere.key) = (topic("elsewhere"), parked.key.clone());
    let free = [keyed("b", 1), elsewhere];
    stage.enqueue(&[parked.clone(), successor.clone()]).await;
    stage.enqueue(&free).await;
    let leases = stage.lease_all("one").await;
    assert_eq!(stage.settle(&leases, &parked, park()).await.len(), 1);

    let due = sorted(stage.due_ids(&leases).await);
    assert_eq!(due, sorted(ids(&free)), "only the key of the parked message waits");
    successor.id = landfall_core::MessageId::new();
    stage.enqueue(&[successor]).await;
    assert_eq!(stage.due_ids(&leases).await.len(), free.len(), "and what comes later waits too");

    let letter = stage.letter(&parked).await;
    assert_eq!((letter.group, letter.status), (None, DeadLetterStatus::Parked));
    assert_eq!((&letter.topic, &letter.key, letter.sequence), (&parked.topic, &parked.key, parked.sequence));
    assert_eq!((letter.kind.as_str(), &letter.payload), (parked.kind.as_str(), &parked.payload));
    assert_eq!(letter.headers.to_string(), parked.headers.to_json());
    assert_eq!((letter.error_code.as_str(), letter.attempts, letter.redrives), ("TOO_LARGE", 1, 0));
    assert_eq!(letter.error, "the broker takes no more than 10 bytes");
    let stats = stage.database.stats().await.unwrap();
    assert_eq!((stats.pending, stats.retrying, stats.parked, stats.published), (4, 0, 1, 0));
}

pub async fn parking_a_message_without_a_key_holds_nobody<F: DatabaseFixture>(stage: Stage<F>) {
    let (parked, free) = (keyless(), [keyless(), keyed("a", 1)]);
    stage.enqueue(std::slice::from_ref(&parked)).await;
    stage.enqueue(&free).await;
    let leases = stage.lease_all("one").await;
    stage.settle(&leases, &parked, park()).await;
    assert_eq!(sorted(stage.due_ids(&leases).await), sorted(ids(&free)));
}

pub async fn a_redriven_message_goes_out_before_its_successors<F: DatabaseFixture>(stage: Stage<F>) {
    let mut messages = series("a", 2);
    stage.enqueue(&messages).await;
    let leases = stage.lease_all("one").await;
    stage.settle(&leases, &messages[0], park()).await;
    messages.push(keyed("a", 3));
    stage.enqueue(&messages[2..]).await;
    stage.redrive(&messages[0]).await;

    let due = stage.due(&leases).await;
    assert_eq!(due.iter().map(|entry| entry.attempts).collect::<Vec<_>>(), [0, 0, 0]);
    let due: Vec<Message> = due.into_iter().map(|entry| entry.message.unwrap()).collect();
    assert_eq!(due, messages, "the same messages under the same ids, in order");
    let letter = stage.letter(&messages[0]).await;
    assert_eq!((letter.status, letter.redrives), (DeadLetterStatus::Done, 1));
    let stats = stage.database.stats().await.unwrap();
    assert_eq!((stats.pending, stats.retrying, stats.parked, stats.published), (3, 0, 0, 0));
}

pub async fn a_second_redrive_changes_nothing<F: DatabaseFixture>(stage: Stage<F>) {
    let messages = series("a", 2);
    stage.enqueue(&messages).await;
    let leases = stage.lease_all("one").await;
    stage.settle(&leases, &messages[0], park()).await;
    stage.redrive(&messages[0]).await;
    let audit = stage.audit().await;

    let again = stage.database.redrive(&DeadLetterFilter::default(), "alice").await.unwrap();
    assert!(again.redriven.is_empty(), "{again:?}");
    assert_eq!(again.skipped, [stage.letter(&messages[0]).await.id]);
    assert_eq!(stage.due_ids(&leases).await, ids(&messages));
    assert_eq!(stage.letter(&messages[0]).await.redrives, 1);
    assert_eq!(stage.audit().await, audit, "what changed nothing is not in the audit trail");
}

pub async fn a_redriven_message_can_be_parked_again<F: DatabaseFixture>(stage: Stage<F>) {
    let messages = series("a", 2);
    stage.enqueue(&messages).await;
    let leases = stage.lease_all("one").await;
    stage.settle(&leases, &messages[0], park()).await;
    stage.redrive(&messages[0]).await;
    stage.settle(&leases, &messages[0], park()).await;

    assert_eq!(stage.letter(&messages[0]).await.status, DeadLetterStatus::Parked);
    assert!(stage.due(&leases).await.is_empty(), "its key is held again");
    assert_eq!(stage.database.stats().await.unwrap().parked, 1);

    stage.redrive(&messages[0]).await;
    assert_eq!(stage.due_ids(&leases).await, ids(&messages));
    assert_eq!(stage.letter(&messages[0]).await.redrives, 2);
}

/// Ids are not compared in the outbox, so one id may stand there twice; neither row may take the other's place.
pub async fn two_rows_of_one_id_are_parked_and_redriven_apart<F: DatabaseFixture>(stage: Stage<F>) {
    let orders = keyed("a", 1);
    let mut payments = orders.clone();
    payments.topic = topic("payments");
    stage.enqueue(&[orders.clone(), payments.clone()]).await;
    let leases = stage.lease_all("one").await;
    let due = stage.due(&leases).await;
    let settlements: Vec<_> = due.iter().map(|entry| settlement(entry, park())).collect();
    assert_eq!(stage.database.settle(&leases, &settlements).await.unwrap().len(), 2);
    assert_eq!((stage.letters().await.len(), stage.database.stats().await.unwrap().parked), (2, 2));

    let answer = stage.database.redrive(&DeadLetterFilter::default(), "alice").await.unwrap();
    assert_eq!(answer.redriven.len(), 2);
    let due: Vec<Message> = stage.due(&leases).await.into_iter().map(|entry| entry.message.unwrap()).collect();
    assert_eq!(due, [orders, payments], "each as it was");
}

pub async fn an_unreadable_row_comes_as_an_error_and_can_be_parked<F: DatabaseFixture>(stage: Stage<F>) {
    let mut transaction = stage.database.begin().await.unwrap();
    stage.fixture.insert_unreadable(&mut transaction, &topic("orders"), &key("a")).await;
    stage.database.commit(transaction).await.unwrap();
    stage.enqueue(&[keyed("a", 2), keyed("b", 1)]).await;
    let leases = stage.lease_all("one").await;

    let due = stage.due(&leases).await;
    let (broken, sound): (Vec<_>, Vec<_>) = due.into_iter().partition(|entry| entry.message.is_err());
    assert_eq!((broken.len(), sound.len()), (1, 2), "one broken row does not hide the others");
    let error = broken[0].message.as_ref().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");

    let decision = Decision::Park { code: ErrorCode::VALIDATION, error: error.to_string(), holds_key: true };
    let settled = stage.database.settle(&leases, &[settlement(&broken[0], decision)]).await.unwrap();
    assert_eq!(settled, [broken[0].row]);
    let due = stage.due(&leases).await;
    assert_eq!(due.len(), 1, "its key waits behind it");
    assert_eq!(due[0].message.as_ref().unwrap().key, Some(key("b")));
    let letters = stage.letters().await;
    assert_eq!(letters.len(), 1);
    assert_eq!((letters[0].message_id, letters[0].status), (broken[0].message_id, DeadLetterStatus::Parked));
    assert_eq!(letters[0].headers["x"], "a\nb", "what was stored is shown");
}

pub async fn a_key_with_two_parked_rows_is_held_until_both_are_redriven<F: DatabaseFixture>(stage: Stage<F>) {
    let messages = series("a", 3);
    stage.enqueue(&messages).await;
    let leases = stage.lease_all("one").await;
    let due = stage.due(&leases).await;
    let settlements: Vec<_> = due[..2].iter().map(|entry| settlement(entry, park())).collect();
    assert_eq!(stage.database.settle(&leases, &settlements).await.unwrap().len(), 2);

    stage.redrive(&messages[1]).await;
    assert!(stage.due(&leases).await.is_empty(), "the first is still parked");
    stage.redrive(&messages[0]).await;
    assert_eq!(stage.due_ids(&leases).await, ids(&messages));
}
