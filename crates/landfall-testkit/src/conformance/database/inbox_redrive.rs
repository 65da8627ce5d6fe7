//! The way back through the handler: in order, and then the key is free.

use landfall_core::{Admission, Database, DeadLetterStatus, DeadLetters, ErrorKind, Hold, Inbox, Setback};

use super::stage::setback;
use super::{DatabaseFixture, Effect, Stage};
use crate::conformance::sample::{failure, group, ids, keyed, keyless, series};

pub async fn what_is_parked_is_not_handled_by_itself<F: DatabaseFixture>(stage: Stage<F>) {
    let stock = group("stock");
    assert!(stage.drain_one(&stock).await.is_none(), "there is nothing at all");
    stage.park_with_successors(&stock, &series("a", 3)).await;
    stage.park(&stock, &keyless()).await;
    assert!(stage.drain_one(&stock).await.is_none(), "nobody asked for them");
}

pub async fn a_redrive_drains_the_key_in_order_and_lets_traffic_through<F: DatabaseFixture>(stage: Stage<F>) {
    let (stock, messages) = (group("stock"), series("a", 4));
    stage.park_with_successors(&stock, &messages[..3]).await;
    stage.redrive(&messages[0]).await;
    assert_eq!(stage.letter(&messages[0]).await.status, DeadLetterStatus::Redriving);
    assert_eq!(stage.drain(&stock).await, ids(&messages[..3]));

    assert!(stage.letters().await.iter().all(|letter| letter.status == DeadLetterStatus::Done));
    assert_eq!(stage.handle(&stock, &messages[3]).await, Admission::Fresh);
    assert_eq!(stage.handle(&stock, &messages[0]).await, Admission::Duplicate, "its effect happened");
    assert_eq!(stage.effects().await, messages.iter().map(Effect::from).collect::<Vec<_>>());
}

pub async fn live_traffic_queues_behind_a_drain<F: DatabaseFixture>(stage: Stage<F>) {
    let (stock, messages) = (group("stock"), series("a", 4));
    stage.park_with_successors(&stock, &messages[..2]).await;
    stage.redrive(&messages[0]).await;
    assert_eq!(stage.handle(&stock, &messages[2]).await, Admission::Held, "before the first is handled");
    assert_eq!(stage.drain_one(&stock).await.unwrap().message.id, messages[0].id);
    assert_eq!(stage.handle(&stock, &messages[3]).await, Admission::Held, "while others still wait");
    assert_eq!(stage.drain(&stock).await, ids(&messages[1..]));
    assert_eq!(stage.handle(&stock, &keyed("a", 5)).await, Admission::Fresh);
}

pub async fn failing_again_parks_again_with_successors_behind<F: DatabaseFixture>(stage: Stage<F>) {
    let (stock, messages) = (group("stock"), series("a", 3));
    stage.park_with_successors(&stock, &messages).await;
    stage.redrive(&messages[0]).await;
    let failed = stage.fail_one(&stock).await;
    assert_eq!((failed.message.id, failed.attempts), (messages[0].id, 3));

    let letter = stage.letter(&messages[0]).await;
    assert_eq!((letter.status, letter.attempts, letter.redrives), (DeadLetterStatus::Parked, 4, 1));
    assert_eq!((letter.error_code, letter.error), (failure().code.to_string(), failure().error));
    assert!(stage.drain_one(&stock).await.is_none(), "the successors wait behind it");
    assert_eq!(stage.letter(&messages[1]).await.status, DeadLetterStatus::Waiting);
    assert_eq!(stage.handle(&stock, &keyed("a", 4)).await, Admission::Held);

    stage.redrive(&messages[0]).await;
    assert_eq!(stage.drain(&stock).await[..3], ids(&messages));
    assert_eq!(stage.effects().await.len(), 4);
}

pub async fn a_rolled_back_drain_is_done_again<F: DatabaseFixture>(stage: Stage<F>) {
    let (stock, messages) = (group("stock"), series("a", 2));
    stage.park_with_successors(&stock, &messages).await;
    stage.redrive(&messages[0]).await;
    let mut transaction = stage.database.begin().await.unwrap();
    let item = stage.database.next_redriven(&mut transaction, &stock, &[]).await.unwrap().unwrap();
    stage.fixture.insert_effect(&mut transaction, &(&item.message).into()).await;
    stage.database.complete_redriven(&mut transaction, &item).await.unwrap();
    drop(transaction);

    // The driver may roll back a little after the drop, and until then the message is being handled elsewhere.
    crate::eventually(super::stage::SOON, "the message is handed out again", async || {
        stage.drain_one(&stock).await.is_some_and(|item| item.message.id == messages[0].id)
    })
    .await;
    assert_eq!(stage.drain(&stock).await, ids(&messages[1..]));
    assert_eq!(stage.effects().await.len(), 2);
}

pub async fn a_resting_message_holds_its_key_and_no_other<F: DatabaseFixture>(stage: Stage<F>) {
    let (stock, first, second) = (group("stock"), series("a", 2), series("b", 2));
    stage.park_with_successors(&stock, &first).await;
    stage.park_with_successors(&stock, &second).await;
    stage.redrive(&first[0]).await;
    stage.redrive(&second[0]).await;
    let resting = [stage.letter(&first[0]).await.id];
    let mut transaction = stage.database.begin().await.unwrap();
    let item = stage.database.next_redriven(&mut transaction, &stock, &resting).await.unwrap().unwrap();
    assert_eq!(item.message.id, second[0].id);
    let resting = [resting[0], item.id];
    let none = stage.database.next_redriven(&mut transaction, &stock, &resting).await.unwrap();
    assert!(none.is_none(), "what is behind a resting message waits with it: {none:?}");
}

pub async fn a_successor_that_fails_holds_those_behind_it<F: DatabaseFixture>(stage: Stage<F>) {
    let (stock, messages) = (group("stock"), series("a", 3));
    stage.park_with_successors(&stock, &messages).await;
    stage.redrive(&messages[0]).await;
    stage.drain_one(&stock).await.unwrap();
    assert_eq!(stage.fail_one(&stock).await.message.id, messages[1].id);

    assert!(stage.drain_one(&stock).await.is_none());
    let letter = stage.letter(&messages[1]).await;
    assert_eq!((letter.status, letter.attempts), (DeadLetterStatus::Parked, 1));
    assert_eq!(stage.handle(&stock, &keyed("a", 4)).await, Admission::Held);
    stage.redrive(&messages[1]).await;
    let drained = stage.drain(&stock).await;
    assert_eq!(drained[..2], ids(&messages[1..]));
    assert_eq!(drained.len(), 3);
}

pub async fn what_is_done_cannot_be_parked_again<F: DatabaseFixture>(stage: Stage<F>) {
    let (stock, message) = (group("stock"), keyed("a", 1));
    stage.park(&stock, &message).await;
    stage.redrive(&message).await;
    let item = stage.drain_one(&stock).await.unwrap();
    let audit = stage.audit().await;

    let mut transaction = stage.database.begin().await.unwrap();
    let parked = stage.database.park_redriven(&mut transaction, &item, setback(&item, &failure(), None)).await.unwrap();
    assert!(!parked, "and whoever tries is told");
    stage.database.commit(transaction).await.unwrap();
    assert_eq!(stage.letter(&message).await.status, DeadLetterStatus::Done);
    assert_eq!(stage.audit().await, audit, "what changed nothing is not in the audit trail");
    assert_eq!(stage.handle(&stock, &keyed("a", 2)).await, Admission::Fresh);
}

pub async fn messages_without_a_key_are_redriven_apart<F: DatabaseFixture>(stage: Stage<F>) {
    let (stock, messages) = (group("stock"), [keyless(), keyless(), keyless()]);
    for message in &messages {
        stage.park(&stock, message).await;
    }
    stage.redrive(&messages[2]).await;
    assert_eq!(stage.drain(&stock).await, [messages[2].id], "the others do not stand before it");
    stage.redrive(&messages[0]).await;
    stage.redrive(&messages[1]).await;
    assert_eq!(stage.drain(&stock).await, ids(&messages[..2]));
}

pub async fn a_redrive_stays_in_its_group<F: DatabaseFixture>(stage: Stage<F>) {
    let (stock, payment, message) = (group("stock"), group("payment"), keyed("a", 1));
    stage.park(&stock, &message).await;
    stage.redrive(&message).await;
    assert!(stage.drain_one(&payment).await.is_none());
    assert_eq!(stage.drain(&stock).await, [message.id]);
}

/// Completing what nobody redrives would commit an effect that belongs to nothing.
pub async fn what_is_done_cannot_be_completed_again<F: DatabaseFixture>(stage: Stage<F>) {
    let (stock, message) = (group("stock"), keyed("a", 1));
    stage.park(&stock, &message).await;
    stage.redrive(&message).await;
    let mut transaction = stage.database.begin().await.unwrap();
    let item = stage.database.next_redriven(&mut transaction, &stock, &[]).await.unwrap().unwrap();
    stage.database.complete_redriven(&mut transaction, &item).await.unwrap();
    let error = stage.database.complete_redriven(&mut transaction, &item).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
}

/// Such as one that turned out to be older than what was applied: nobody waits for it, and nothing it does can help.
pub async fn a_successor_that_is_parked_aside_lets_those_behind_it_pass<F: DatabaseFixture>(stage: Stage<F>) {
    let (stock, messages) = (group("stock"), series("a", 4));
    stage.park_with_successors(&stock, &messages[..3]).await;
    stage.redrive(&messages[0]).await;
    assert_eq!(stage.drain_one(&stock).await.unwrap().message.id, messages[0].id);
    for last in [false, true] {
        let mut transaction = stage.database.begin().await.unwrap();
        let item = stage.database.next_redriven(&mut transaction, &stock, &[]).await.unwrap().expect("a successor");
        assert_eq!(item.message.id, messages[if last { 2 } else { 1 }].id);
        let failure = failure();
        let aside = Setback { hold: Hold::Nothing, ..setback(&item, &failure, None) };
        stage.database.park_redriven(&mut transaction, &item, aside).await.unwrap();
        stage.database.commit(transaction).await.unwrap();
    }
    assert_eq!(stage.handle(&stock, &messages[3]).await, Admission::Fresh, "the key is free");
    assert_eq!(stage.database.dead_letter_stats().await.unwrap().parked, 2);
}
