//! A message that a consumer gave up on: it holds its key, and its successors queue behind it.

use landfall_core::{Admission, Database, DeadLetterStatus, DeadLetters, Hold, Inbox, Mode, Parking};

use super::{DatabaseFixture, Stage};
use crate::conformance::sample::{elaborate, failure, group, ids, keyed, keyless, series, topic};

pub async fn a_parked_message_holds_its_key_and_successors_queue_behind_it<F: DatabaseFixture>(stage: Stage<F>) {
    let (stock, messages) = (group("stock"), series("a", 3));
    stage.park_with_successors(&stock, &messages).await;

    assert_eq!(stage.handle(&stock, &keyed("b", 1)).await, Admission::Fresh, "another key flows");
    assert_eq!(stage.handle(&stock, &keyless()).await, Admission::Fresh, "so does what has no key");
    let mut elsewhere = keyed("a", 1);
    elsewhere.topic = topic("payments");
    assert_eq!(stage.handle(&stock, &elsewhere).await, Admission::Fresh, "and the key on another topic");

    let letters = stage.letters().await;
    assert_eq!(letters.iter().map(|letter| letter.message_id).collect::<Vec<_>>(), ids(&messages), "in order");
    let statuses: Vec<_> = letters.iter().map(|letter| letter.status).collect();
    assert_eq!(statuses, [DeadLetterStatus::Parked, DeadLetterStatus::Waiting, DeadLetterStatus::Waiting]);
    assert_eq!((letters[1].error_code.as_str(), letters[1].attempts), ("BEHIND_PREDECESSOR", 0));
    assert_eq!(stage.effects().await.len(), 3, "no effect of the key");
}

pub async fn a_parked_message_without_a_key_holds_nobody<F: DatabaseFixture>(stage: Stage<F>) {
    let stock = group("stock");
    stage.park(&stock, &keyless()).await;
    assert_eq!(stage.handle(&stock, &keyless()).await, Admission::Fresh);
    assert_eq!(stage.handle(&stock, &keyed("a", 1)).await, Admission::Fresh);
}

pub async fn a_duplicate_of_what_is_parked_or_waiting_is_a_duplicate<F: DatabaseFixture>(stage: Stage<F>) {
    let (stock, messages) = (group("stock"), series("a", 2));
    stage.park_with_successors(&stock, &messages).await;
    for message in &messages {
        assert_eq!(stage.handle(&stock, message).await, Admission::Duplicate);
    }
    assert_eq!(stage.letters().await.len(), 2);
    assert!(stage.effects().await.is_empty());
}

pub async fn a_held_message_that_is_not_deduplicated_waits_once<F: DatabaseFixture>(stage: Stage<F>) {
    let (stock, message) = (group("stock"), keyed("a", 2).with_mode(Mode::AtLeastOnce));
    stage.park(&stock, &keyed("a", 1)).await;
    assert_eq!(stage.handle(&stock, &message).await, Admission::Held);
    assert_eq!(stage.handle(&stock, &message).await, Admission::Held);
    assert_eq!(stage.letter(&message).await.status, DeadLetterStatus::Waiting);
    assert_eq!(stage.database.dead_letter_stats().await.unwrap().waiting, 1);
}

pub async fn a_rolled_back_park_holds_nobody<F: DatabaseFixture>(stage: Stage<F>) {
    let (stock, message) = (group("stock"), keyed("a", 1));
    let mut transaction = stage.database.begin().await.unwrap();
    assert_eq!(stage.database.admit(&mut transaction, &stock, &message, None).await.unwrap(), Admission::Fresh);
    stage.database.park(&mut transaction, &stock, &message, None, Parking::with_key(3, &failure())).await.unwrap();
    drop(transaction);

    assert_eq!(stage.handle(&stock, &message).await, Admission::Fresh);
    assert_eq!(stage.handle(&stock, &keyed("a", 2)).await, Admission::Fresh);
    assert!(stage.letters().await.is_empty());
    assert!(stage.audit().await.is_empty());
}

pub async fn a_dead_letter_keeps_everything_about_its_message<F: DatabaseFixture>(stage: Stage<F>) {
    let (stock, parked) = (group("stock"), elaborate());
    stage.park(&stock, &parked).await;
    let letter = stage.letter(&parked).await;
    assert_eq!((letter.group.as_ref(), letter.status), (Some(&stock), DeadLetterStatus::Parked));
    assert_eq!((&letter.topic, &letter.key, letter.sequence), (&parked.topic, &parked.key, parked.sequence));
    assert_eq!((letter.kind.as_str(), &letter.payload), (parked.kind.as_str(), &parked.payload));
    assert_eq!(letter.headers.to_string(), parked.headers.to_json());
    assert_eq!((letter.error_code, letter.error), (failure().code.to_string(), failure().error));
    assert_eq!((letter.attempts, letter.redrives), (3, 0));
    assert_eq!((letter.original_partition, letter.original_offset), (Some(3), Some(42)));

    // The handler gets the very same message when it is redriven.
    stage.redrive(&parked).await;
    let item = stage.drain_one(&stock).await.unwrap();
    assert_eq!((item.id, item.attempts), (letter.id, 3));
    assert_eq!(item.message, parked);
}

pub async fn a_message_parked_aside_holds_nobody_and_is_redriven_alone<F: DatabaseFixture>(stage: Stage<F>) {
    let (stock, messages) = (group("stock"), series("a", 3));
    for message in &messages[..2] {
        let mut transaction = stage.database.begin().await.unwrap();
        assert_eq!(stage.database.admit(&mut transaction, &stock, message, None).await.unwrap(), Admission::Fresh);
        let failure = failure();
        let parking = Parking { hold: Hold::Nothing, ..Parking::with_key(1, &failure) };
        stage.database.park(&mut transaction, &stock, message, None, parking).await.unwrap();
        stage.database.commit(transaction).await.unwrap();
    }
    assert_eq!(stage.handle(&stock, &messages[2]).await, Admission::Fresh, "its key goes on");

    // The second does not wait for the first, and failing again it still holds nobody.
    stage.redrive(&messages[1]).await;
    assert_eq!(stage.fail_one(&stock).await.message.id, messages[1].id);
    assert_eq!(stage.handle(&stock, &keyed("a", 4)).await, Admission::Fresh);
    stage.redrive(&messages[1]).await;
    assert_eq!(stage.drain(&stock).await, [messages[1].id]);

    // One that does hold the key is drained past the one that does not.
    let holder = keyed("a", 5);
    stage.park(&stock, &holder).await;
    stage.redrive(&holder).await;
    assert_eq!(stage.drain(&stock).await, [holder.id]);
    assert_eq!(stage.handle(&stock, &keyed("a", 6)).await, Admission::Fresh, "and the key is free");
    assert_eq!(stage.letter(&messages[0]).await.status, DeadLetterStatus::Parked);
}
