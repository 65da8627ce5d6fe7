//! Parked messages: a dead letter holds its key, and its successors queue behind it.

use landfall_core::adapter::{Admission, Hold, Parking};
use landfall_core::{Database, DeadLetterStatus, DeadLetters, Inbox, Mode};

use super::{DatabaseFixture, Harness};
use crate::conformance::sample::{elaborate, failure, group, ids, keyed, keyless, series, topic};

pub async fn parked_message_holds_its_key_and_queues_successors<F: DatabaseFixture>(harness: Harness<F>) {
    let (stock, messages) = (group("stock"), series("a", 3));
    harness.park_with_successors(&stock, &messages).await;

    assert_eq!(harness.handle(&stock, &keyed("b", 1)).await, Admission::Fresh, "another key is blocked");
    assert_eq!(harness.handle(&stock, &keyless()).await, Admission::Fresh, "a keyless message is blocked");
    let mut elsewhere = keyed("a", 1);
    elsewhere.topic = topic("payments");
    assert_eq!(harness.handle(&stock, &elsewhere).await, Admission::Fresh, "the key on another topic is blocked");

    let letters = harness.letters().await;
    assert_eq!(letters.iter().map(|letter| letter.message_id).collect::<Vec<_>>(), ids(&messages), "out of order");
    let statuses: Vec<_> = letters.iter().map(|letter| letter.status).collect();
    assert_eq!(statuses, [DeadLetterStatus::Parked, DeadLetterStatus::Waiting, DeadLetterStatus::Waiting]);
    assert_eq!((letters[1].error_code.as_str(), letters[1].attempts), ("BEHIND_PREDECESSOR", 0));
    assert_eq!(harness.effects().await.len(), 3, "a held message had an effect");
}

pub async fn keyless_dead_letter_blocks_nothing<F: DatabaseFixture>(harness: Harness<F>) {
    let stock = group("stock");
    harness.park(&stock, &keyless()).await;
    assert_eq!(harness.handle(&stock, &keyless()).await, Admission::Fresh);
    assert_eq!(harness.handle(&stock, &keyed("a", 1)).await, Admission::Fresh);
}

pub async fn parked_and_waiting_messages_are_deduplicated<F: DatabaseFixture>(harness: Harness<F>) {
    let (stock, messages) = (group("stock"), series("a", 2));
    harness.park_with_successors(&stock, &messages).await;
    for message in &messages {
        assert_eq!(harness.handle(&stock, message).await, Admission::Duplicate);
    }
    assert_eq!(harness.letters().await.len(), 2);
    assert!(harness.effects().await.is_empty());
}

pub async fn held_message_without_dedup_waits_once<F: DatabaseFixture>(harness: Harness<F>) {
    let (stock, message) = (group("stock"), keyed("a", 2).with_mode(Mode::AtLeastOnce));
    harness.park(&stock, &keyed("a", 1)).await;
    assert_eq!(harness.handle(&stock, &message).await, Admission::Held);
    assert_eq!(harness.handle(&stock, &message).await, Admission::Held);
    assert_eq!(harness.letter(&message).await.status, DeadLetterStatus::Waiting);
    assert_eq!(harness.database.dead_letter_stats().await.unwrap().waiting, 1);
}

pub async fn rolled_back_park_holds_no_key<F: DatabaseFixture>(harness: Harness<F>) {
    let (stock, message) = (group("stock"), keyed("a", 1));
    let mut transaction = harness.database.begin().await.unwrap();
    assert_eq!(harness.database.admit(&mut transaction, &stock, &message, None).await.unwrap(), Admission::Fresh);
    harness.database.park(&mut transaction, &stock, &message, None, Parking::with_key(3, &failure())).await.unwrap();
    drop(transaction);

    assert_eq!(harness.handle(&stock, &message).await, Admission::Fresh);
    assert_eq!(harness.handle(&stock, &keyed("a", 2)).await, Admission::Fresh);
    assert!(harness.letters().await.is_empty());
    assert!(harness.audit().await.is_empty());
}

pub async fn dead_letter_keeps_all_message_fields<F: DatabaseFixture>(harness: Harness<F>) {
    let (stock, parked) = (group("stock"), elaborate());
    harness.park(&stock, &parked).await;
    let letter = harness.letter(&parked).await;
    assert_eq!((letter.group.as_ref(), letter.status), (Some(&stock), DeadLetterStatus::Parked));
    assert_eq!((&letter.topic, &letter.key, letter.sequence), (&parked.topic, &parked.key, parked.sequence));
    assert_eq!((letter.kind.as_str(), &letter.payload), (parked.kind.as_str(), &parked.payload));
    assert_eq!(letter.headers.to_string(), parked.headers.to_json());
    assert_eq!((letter.error_code, letter.error), (failure().code.to_string(), failure().error));
    assert_eq!((letter.attempts, letter.redrives), (3, 0));
    assert_eq!((letter.original_partition, letter.original_offset), (Some(3), Some(42)));

    // A redrive hands the unchanged message to the handler.
    harness.redrive(&parked).await;
    let item = harness.drain_one(&stock).await.unwrap();
    assert_eq!((item.id, item.attempts), (letter.id, 3));
    assert_eq!(item.message, parked);
}

pub async fn message_parked_without_hold_is_redriven_alone<F: DatabaseFixture>(harness: Harness<F>) {
    let (stock, messages) = (group("stock"), series("a", 3));
    for message in &messages[..2] {
        let mut transaction = harness.database.begin().await.unwrap();
        assert_eq!(harness.database.admit(&mut transaction, &stock, message, None).await.unwrap(), Admission::Fresh);
        let failure = failure();
        let parking = Parking { hold: Hold::Nothing, ..Parking::with_key(1, &failure) };
        harness.database.park(&mut transaction, &stock, message, None, parking).await.unwrap();
        harness.database.commit(transaction).await.unwrap();
    }
    assert_eq!(harness.handle(&stock, &messages[2]).await, Admission::Fresh, "the key is held");

    // The second message does not wait for the first, and after another failure it still does not hold the key.
    harness.redrive(&messages[1]).await;
    assert_eq!(harness.fail_one(&stock).await.message.id, messages[1].id);
    assert_eq!(harness.handle(&stock, &keyed("a", 4)).await, Admission::Fresh);
    harness.redrive(&messages[1]).await;
    assert_eq!(harness.drain(&stock).await, [messages[1].id]);

    // A message that holds the key is drained past the one that does not.
    let holding = keyed("a", 5);
    harness.park(&stock, &holding).await;
    harness.redrive(&holding).await;
    assert_eq!(harness.drain(&stock).await, [holding.id]);
    assert_eq!(harness.handle(&stock, &keyed("a", 6)).await, Admission::Fresh, "the key is still held");
    assert_eq!(harness.letter(&messages[0]).await.status, DeadLetterStatus::Parked);
}
