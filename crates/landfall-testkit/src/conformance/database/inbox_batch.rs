//! Taking charge of many messages at once: the same answers as one by one.

use std::time::Duration;

use landfall_core::{Admission, Arrival, Database, GroupName, Inbox, Message, Mode, Parking, Position};

use super::stage::A_MOMENT;
use super::{DatabaseFixture, Stage};
use crate::conformance::sample::{failure, group, ids, keyed, keyless, series};

/// What a consumer does with a batch that its handler can handle.
async fn handle<F: DatabaseFixture>(stage: &Stage<F>, stock: &GroupName, messages: &[Message]) -> Vec<Admission> {
    let mut transaction = stage.database.begin().await.unwrap();
    let batch: Vec<_> = messages.iter().map(|message| Arrival { message, origin: None }).collect();
    let admissions = stage.database.admit_batch(&mut transaction, stock, &batch).await.unwrap();
    for (message, _) in messages.iter().zip(&admissions).filter(|(_, admission)| **admission == Admission::Fresh) {
        stage.fixture.insert_effect(&mut transaction, &message.into()).await;
    }
    stage.database.commit(transaction).await.unwrap();
    admissions
}

pub async fn a_batch_is_answered_as_one_by_one<F: DatabaseFixture>(stage: Stage<F>) {
    let (together, apart) = (group("together"), group("apart"));
    let known = keyed("known", 1);
    let parked = keyed("parked", 1);
    for group in [&together, &apart] {
        assert_eq!(stage.handle(group, &known).await, Admission::Fresh);
        stage.park(group, &parked).await;
    }
    let free = keyed("parked", 4).with_mode(Mode::AtLeastOnce);
    let (fresh, keyless, held) = (keyed("a", 1), keyless(), series("parked", 3));
    let batch = [
        &fresh,
        &known,
        &keyless,
        &fresh,
        &held[1],
        &parked,
        &held[2],
        &keyless,
        &held[1],
        &free,
        &free,
        &keyed("a", 2),
    ]
    .map(Clone::clone);
    let mut one_by_one = Vec::new();
    for message in &batch {
        one_by_one.push(stage.handle(&apart, message).await);
    }
    assert_eq!(handle(&stage, &together, &batch).await, one_by_one);
    assert_eq!(handle(&stage, &together, &batch[..9]).await, [Admission::Duplicate; 9], "and from now on");

    let letters = |group: GroupName, letters: &[landfall_core::DeadLetter]| -> Vec<_> {
        let mine = letters.iter().filter(|letter| letter.group.as_ref() == Some(&group));
        mine.map(|letter| (letter.message_id, letter.status)).collect()
    };
    let all = stage.letters().await;
    assert_eq!(letters(together, &all), letters(apart, &all), "the same letters in the same order");
}

pub async fn a_batch_of_nothing_and_one_of_many<F: DatabaseFixture>(stage: Stage<F>) {
    let stock = group("stock");
    assert!(handle(&stage, &stock, &[]).await.is_empty());
    let messages: Vec<_> = (0..1100).map(|n| keyed(&format!("key {}", n % 300), n)).collect();
    let known: Vec<_> = messages.iter().step_by(2).cloned().collect();
    assert_eq!(handle(&stage, &stock, &known).await, vec![Admission::Fresh; 550]);
    let admissions = handle(&stage, &stock, &messages).await;
    let expected: Vec<_> =
        (0..1100).map(|n| if n % 2 == 0 { Admission::Duplicate } else { Admission::Fresh }).collect();
    assert_eq!(admissions, expected);
    assert_eq!(stage.effects().await.len(), 1100);
}

pub async fn a_rolled_back_batch_leaves_nothing<F: DatabaseFixture>(stage: Stage<F>) {
    let stock = group("stock");
    stage.park(&stock, &keyed("a", 1)).await;
    let messages = [keyed("a", 2), keyed("b", 1)];
    let batch: Vec<_> = messages.iter().map(|message| Arrival { message, origin: None }).collect();
    let mut transaction = stage.database.begin().await.unwrap();
    stage.database.admit_batch(&mut transaction, &stock, &batch).await.unwrap();
    drop(transaction);
    assert_eq!(stage.letters().await.len(), 1);
    assert_eq!(handle(&stage, &stock, &messages).await, [Admission::Held, Admission::Fresh]);
}

pub async fn what_is_held_of_a_batch_queues_in_its_order<F: DatabaseFixture>(stage: Stage<F>) {
    let (stock, messages) = (group("stock"), series("a", 6));
    stage.park(&stock, &messages[0]).await;
    let place = |offset| Some(Position { partition: 7, offset });
    let batch: Vec<_> =
        messages.iter().zip(0..).map(|(message, offset)| Arrival { message, origin: place(offset) }).collect();
    let mut transaction = stage.database.begin().await.unwrap();
    stage.database.admit_batch(&mut transaction, &stock, &batch[1..]).await.unwrap();
    stage.database.commit(transaction).await.unwrap();
    assert_eq!(stage.letters().await[5].original_offset, Some(5));
    stage.redrive(&messages[0]).await;
    assert_eq!(stage.drain(&stock).await, ids(&messages));
}

/// A batch arrives while another member, which is about to lose the partition, parks its first message. The insert
/// waits for that; and the second message must find its key held, although it was not when the insert began.
pub async fn a_batch_that_waited_for_a_copy_finds_the_key_held<F: DatabaseFixture>(stage: Stage<F>) {
    if !F::capabilities().concurrent_writers {
        return;
    }
    let (stock, messages) = (group("stock"), series("a", 2));
    let mut elsewhere = stage.database.begin().await.unwrap();
    stage.database.admit(&mut elsewhere, &stock, &messages[0], None).await.unwrap();
    stage.database.park(&mut elsewhere, &stock, &messages[0], None, Parking::with_key(3, &failure())).await.unwrap();

    let (second, copies, group) = (stage.second().await, messages.clone(), stock.clone());
    let mut batch = tokio::spawn(async move {
        let batch: Vec<_> = copies.iter().map(|message| Arrival { message, origin: None }).collect();
        let mut transaction = second.begin().await.unwrap();
        let admissions = second.admit_batch(&mut transaction, &group, &batch).await.unwrap();
        second.commit(transaction).await.unwrap();
        admissions
    });
    assert!(tokio::time::timeout(A_MOMENT, &mut batch).await.is_err(), "the copy does not wait for the first");
    stage.database.commit(elsewhere).await.unwrap();
    let admissions = tokio::time::timeout(Duration::from_secs(60), batch).await.expect("the batch goes on").unwrap();
    assert_eq!(admissions, [Admission::Duplicate, Admission::Held]);
}
