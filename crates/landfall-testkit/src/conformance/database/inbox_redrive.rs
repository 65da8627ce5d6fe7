//! Redrive: parked messages are handled in order, and then their key is free.

use landfall_core::adapter::{Admission, Hold, Setback};
use landfall_core::{Database, DeadLetterStatus, DeadLetters, ErrorKind, Inbox};

use super::harness::setback;
use super::{DatabaseFixture, Effect, Harness};
use crate::conformance::sample::{failure, group, ids, keyed, keyless, series};

pub async fn parked_messages_are_not_handled_without_a_redrive<F: DatabaseFixture>(harness: Harness<F>) {
    let stock = group("stock");
    assert!(harness.drain_one(&stock).await.is_none(), "an empty table returned a message");
    harness.park_with_successors(&stock, &series("a", 3)).await;
    harness.park(&stock, &keyless()).await;
    assert!(harness.drain_one(&stock).await.is_none(), "a parked message was handled without a redrive");
}

pub async fn redrive_drains_the_key_in_order_and_frees_it<F: DatabaseFixture>(harness: Harness<F>) {
    let (stock, messages) = (group("stock"), series("a", 4));
    harness.park_with_successors(&stock, &messages[..3]).await;
    harness.redrive(&messages[0]).await;
    assert_eq!(harness.letter(&messages[0]).await.status, DeadLetterStatus::Redriving);
    assert_eq!(harness.drain(&stock).await, ids(&messages[..3]));

    assert!(harness.letters().await.iter().all(|letter| letter.status == DeadLetterStatus::Done));
    assert_eq!(harness.handle(&stock, &messages[3]).await, Admission::Fresh);
    assert_eq!(
        harness.handle(&stock, &messages[0]).await,
        Admission::Duplicate,
        "a handled message was admitted again"
    );
    assert_eq!(harness.effects().await, messages.iter().map(Effect::from).collect::<Vec<_>>());
}

pub async fn live_traffic_queues_behind_a_drain<F: DatabaseFixture>(harness: Harness<F>) {
    let (stock, messages) = (group("stock"), series("a", 4));
    harness.park_with_successors(&stock, &messages[..2]).await;
    harness.redrive(&messages[0]).await;
    assert_eq!(harness.handle(&stock, &messages[2]).await, Admission::Held, "a live message passed a redriving one");
    assert_eq!(harness.drain_one(&stock).await.unwrap().message.id, messages[0].id);
    assert_eq!(harness.handle(&stock, &messages[3]).await, Admission::Held, "a live message passed waiting ones");
    assert_eq!(harness.drain(&stock).await, ids(&messages[1..]));
    assert_eq!(harness.handle(&stock, &keyed("a", 5)).await, Admission::Fresh);
}

pub async fn failed_redrive_parks_again_and_holds_successors<F: DatabaseFixture>(harness: Harness<F>) {
    let (stock, messages) = (group("stock"), series("a", 3));
    harness.park_with_successors(&stock, &messages).await;
    harness.redrive(&messages[0]).await;
    let failed = harness.fail_one(&stock).await;
    assert_eq!((failed.message.id, failed.attempts), (messages[0].id, 3));

    let letter = harness.letter(&messages[0]).await;
    assert_eq!((letter.status, letter.attempts, letter.redrives), (DeadLetterStatus::Parked, 4, 1));
    assert_eq!((letter.error_code, letter.error), (failure().code.to_string(), failure().error));
    assert!(harness.drain_one(&stock).await.is_none(), "a successor passed the parked message");
    assert_eq!(harness.letter(&messages[1]).await.status, DeadLetterStatus::Waiting);
    assert_eq!(harness.handle(&stock, &keyed("a", 4)).await, Admission::Held);

    harness.redrive(&messages[0]).await;
    assert_eq!(harness.drain(&stock).await[..3], ids(&messages));
    assert_eq!(harness.effects().await.len(), 4);
}

pub async fn rolled_back_drain_is_repeated<F: DatabaseFixture>(harness: Harness<F>) {
    let (stock, messages) = (group("stock"), series("a", 2));
    harness.park_with_successors(&stock, &messages).await;
    harness.redrive(&messages[0]).await;
    let mut transaction = harness.database.begin().await.unwrap();
    let item = harness.database.next_redriven(&mut transaction, &stock, &[]).await.unwrap().unwrap();
    harness.fixture.insert_effect(&mut transaction, &(&item.message).into()).await;
    harness.database.complete_redriven(&mut transaction, &item).await.unwrap();
    drop(transaction);

    // The driver may roll back some time after the drop; until then the row is locked.
    crate::eventually(super::harness::TIMEOUT, "the message is returned again", async || {
        harness.drain_one(&stock).await.is_some_and(|item| item.message.id == messages[0].id)
    })
    .await;
    assert_eq!(harness.drain(&stock).await, ids(&messages[1..]));
    assert_eq!(harness.effects().await.len(), 2);
}

pub async fn resting_message_holds_only_its_key<F: DatabaseFixture>(harness: Harness<F>) {
    let (stock, first, second) = (group("stock"), series("a", 2), series("b", 2));
    harness.park_with_successors(&stock, &first).await;
    harness.park_with_successors(&stock, &second).await;
    harness.redrive(&first[0]).await;
    harness.redrive(&second[0]).await;
    let resting = [harness.letter(&first[0]).await.id];
    let mut transaction = harness.database.begin().await.unwrap();
    let item = harness.database.next_redriven(&mut transaction, &stock, &resting).await.unwrap().unwrap();
    assert_eq!(item.message.id, second[0].id);
    let resting = [resting[0], item.id];
    let none = harness.database.next_redriven(&mut transaction, &stock, &resting).await.unwrap();
    assert!(none.is_none(), "a message passed a resting predecessor: {none:?}");
}

pub async fn failing_successor_holds_the_rest_of_its_key<F: DatabaseFixture>(harness: Harness<F>) {
    let (stock, messages) = (group("stock"), series("a", 3));
    harness.park_with_successors(&stock, &messages).await;
    harness.redrive(&messages[0]).await;
    harness.drain_one(&stock).await.unwrap();
    assert_eq!(harness.fail_one(&stock).await.message.id, messages[1].id);

    assert!(harness.drain_one(&stock).await.is_none());
    let letter = harness.letter(&messages[1]).await;
    assert_eq!((letter.status, letter.attempts), (DeadLetterStatus::Parked, 1));
    assert_eq!(harness.handle(&stock, &keyed("a", 4)).await, Admission::Held);
    harness.redrive(&messages[1]).await;
    let drained = harness.drain(&stock).await;
    assert_eq!(drained[..2], ids(&messages[1..]));
    assert_eq!(drained.len(), 3);
}

pub async fn done_dead_letter_cannot_be_parked_again<F: DatabaseFixture>(harness: Harness<F>) {
    let (stock, message) = (group("stock"), keyed("a", 1));
    harness.park(&stock, &message).await;
    harness.redrive(&message).await;
    let item = harness.drain_one(&stock).await.unwrap();
    let audit = harness.audit().await;

    let mut transaction = harness.database.begin().await.unwrap();
    let parked =
        harness.database.park_redriven(&mut transaction, &item, setback(&item, &failure(), None)).await.unwrap();
    assert!(!parked, "park_redriven must report that nothing changed");
    harness.database.commit(transaction).await.unwrap();
    assert_eq!(harness.letter(&message).await.status, DeadLetterStatus::Done);
    assert_eq!(harness.audit().await, audit, "a change without effect was audited");
    assert_eq!(harness.handle(&stock, &keyed("a", 2)).await, Admission::Fresh);
}

pub async fn keyless_messages_are_redriven_independently<F: DatabaseFixture>(harness: Harness<F>) {
    let (stock, messages) = (group("stock"), [keyless(), keyless(), keyless()]);
    for message in &messages {
        harness.park(&stock, message).await;
    }
    harness.redrive(&messages[2]).await;
    assert_eq!(harness.drain(&stock).await, [messages[2].id], "a keyless message waited for others");
    harness.redrive(&messages[0]).await;
    harness.redrive(&messages[1]).await;
    assert_eq!(harness.drain(&stock).await, ids(&messages[..2]));
}

pub async fn redrive_stays_in_its_group<F: DatabaseFixture>(harness: Harness<F>) {
    let (stock, payment, message) = (group("stock"), group("payment"), keyed("a", 1));
    harness.park(&stock, &message).await;
    harness.redrive(&message).await;
    assert!(harness.drain_one(&payment).await.is_none());
    assert_eq!(harness.drain(&stock).await, [message.id]);
}

/// Completing a letter that is not redriving would commit an effect twice.
pub async fn done_dead_letter_cannot_be_completed_again<F: DatabaseFixture>(harness: Harness<F>) {
    let (stock, message) = (group("stock"), keyed("a", 1));
    harness.park(&stock, &message).await;
    harness.redrive(&message).await;
    let mut transaction = harness.database.begin().await.unwrap();
    let item = harness.database.next_redriven(&mut transaction, &stock, &[]).await.unwrap().unwrap();
    harness.database.complete_redriven(&mut transaction, &item).await.unwrap();
    let error = harness.database.complete_redriven(&mut transaction, &item).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
}

/// For example a message that turned out to be older than the applied state: no successor depends on it.
pub async fn successor_parked_without_hold_frees_the_rest<F: DatabaseFixture>(harness: Harness<F>) {
    let (stock, messages) = (group("stock"), series("a", 4));
    harness.park_with_successors(&stock, &messages[..3]).await;
    harness.redrive(&messages[0]).await;
    assert_eq!(harness.drain_one(&stock).await.unwrap().message.id, messages[0].id);
    for last in [false, true] {
        let mut transaction = harness.database.begin().await.unwrap();
        let item = harness
            .database
            .next_redriven(&mut transaction, &stock, &[])
            .await
            .unwrap()
            .expect("no successor to handle");
        assert_eq!(item.message.id, messages[if last { 2 } else { 1 }].id);
        let failure = failure();
        let without_hold = Setback { hold: Hold::Nothing, ..setback(&item, &failure, None) };
        harness.database.park_redriven(&mut transaction, &item, without_hold).await.unwrap();
        harness.database.commit(transaction).await.unwrap();
    }
    assert_eq!(harness.handle(&stock, &messages[3]).await, Admission::Fresh, "the key is still held");
    assert_eq!(harness.database.dead_letter_stats().await.unwrap().parked, 2);
}
