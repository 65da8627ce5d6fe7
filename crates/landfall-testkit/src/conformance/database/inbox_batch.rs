//! Batch admission: the same results as one message at a time.

use std::time::Duration;

use landfall_core::adapter::{Admission, Arrival, Parking};
use landfall_core::{Database, GroupName, Inbox, Message, Mode, Position};

use super::harness::SHORT_WAIT;
use super::{DatabaseFixture, Harness};
use crate::conformance::sample::{failure, group, ids, keyed, keyless, series};

/// Handles a batch as a consumer does whose handler succeeds.
async fn handle<F: DatabaseFixture>(harness: &Harness<F>, stock: &GroupName, messages: &[Message]) -> Vec<Admission> {
    let mut transaction = harness.database.begin().await.unwrap();
    let batch: Vec<_> = messages.iter().map(|message| Arrival { message, origin: None }).collect();
    let admissions = harness.database.admit_batch(&mut transaction, stock, &batch).await.unwrap();
    for (message, _) in messages.iter().zip(&admissions).filter(|(_, admission)| **admission == Admission::Fresh) {
        harness.fixture.insert_effect(&mut transaction, &message.into()).await;
    }
    harness.database.commit(transaction).await.unwrap();
    admissions
}

pub async fn batch_admission_equals_single_admission<F: DatabaseFixture>(harness: Harness<F>) {
    let (batched, single) = (group("batched"), group("single"));
    let known = keyed("known", 1);
    let parked = keyed("parked", 1);
    for group in [&batched, &single] {
        assert_eq!(harness.handle(group, &known).await, Admission::Fresh);
        harness.park(group, &parked).await;
    }
    let no_dedup = keyed("parked", 4).with_mode(Mode::AtLeastOnce);
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
        &no_dedup,
        &no_dedup,
        &keyed("a", 2),
    ]
    .map(Clone::clone);
    let mut one_by_one = Vec::new();
    for message in &batch {
        one_by_one.push(harness.handle(&single, message).await);
    }
    assert_eq!(handle(&harness, &batched, &batch).await, one_by_one);
    assert_eq!(
        handle(&harness, &batched, &batch[..9]).await,
        [Admission::Duplicate; 9],
        "a second admission was not a duplicate"
    );

    let letters = |group: GroupName, letters: &[landfall_core::DeadLetter]| -> Vec<_> {
        let of_group = letters.iter().filter(|letter| letter.group.as_ref() == Some(&group));
        of_group.map(|letter| (letter.message_id, letter.status)).collect()
    };
    let all = harness.letters().await;
    assert_eq!(letters(batched, &all), letters(single, &all), "the dead letters differ");
}

pub async fn empty_and_large_batches_are_admitted<F: DatabaseFixture>(harness: Harness<F>) {
    let stock = group("stock");
    assert!(handle(&harness, &stock, &[]).await.is_empty());
    let messages: Vec<_> = (0..1100).map(|n| keyed(&format!("key {}", n % 300), n)).collect();
    let known: Vec<_> = messages.iter().step_by(2).cloned().collect();
    assert_eq!(handle(&harness, &stock, &known).await, vec![Admission::Fresh; 550]);
    let admissions = handle(&harness, &stock, &messages).await;
    let expected: Vec<_> =
        (0..1100).map(|n| if n % 2 == 0 { Admission::Duplicate } else { Admission::Fresh }).collect();
    assert_eq!(admissions, expected);
    assert_eq!(harness.effects().await.len(), 1100);
}

pub async fn rolled_back_batch_leaves_nothing<F: DatabaseFixture>(harness: Harness<F>) {
    let stock = group("stock");
    harness.park(&stock, &keyed("a", 1)).await;
    let messages = [keyed("a", 2), keyed("b", 1)];
    let batch: Vec<_> = messages.iter().map(|message| Arrival { message, origin: None }).collect();
    let mut transaction = harness.database.begin().await.unwrap();
    harness.database.admit_batch(&mut transaction, &stock, &batch).await.unwrap();
    drop(transaction);
    assert_eq!(harness.letters().await.len(), 1);
    assert_eq!(handle(&harness, &stock, &messages).await, [Admission::Held, Admission::Fresh]);
}

pub async fn held_messages_of_a_batch_queue_in_order<F: DatabaseFixture>(harness: Harness<F>) {
    let (stock, messages) = (group("stock"), series("a", 6));
    harness.park(&stock, &messages[0]).await;
    let position = |offset| Some(Position { partition: 7, offset });
    let batch: Vec<_> =
        messages.iter().zip(0..).map(|(message, offset)| Arrival { message, origin: position(offset) }).collect();
    let mut transaction = harness.database.begin().await.unwrap();
    harness.database.admit_batch(&mut transaction, &stock, &batch[1..]).await.unwrap();
    harness.database.commit(transaction).await.unwrap();
    assert_eq!(harness.letters().await[5].original_offset, Some(5));
    harness.redrive(&messages[0]).await;
    assert_eq!(harness.drain(&stock).await, ids(&messages));
}

/// A batch arrives while another member, which is about to lose the partition, parks the batch's first message. The
/// insert waits for that commit. The second message must then see its key held, although it was free before.
pub async fn batch_that_waited_for_a_duplicate_sees_the_held_key<F: DatabaseFixture>(harness: Harness<F>) {
    let (stock, messages) = (group("stock"), series("a", 2));
    let mut other_member = harness.database.begin().await.unwrap();
    harness.database.admit(&mut other_member, &stock, &messages[0], None).await.unwrap();
    harness
        .database
        .park(&mut other_member, &stock, &messages[0], None, Parking::with_key(3, &failure()))
        .await
        .unwrap();

    let (second, duplicates, group) = (harness.second().await, messages.clone(), stock.clone());
    let mut batch = tokio::spawn(async move {
        let batch: Vec<_> = duplicates.iter().map(|message| Arrival { message, origin: None }).collect();
        let mut transaction = second.begin().await.unwrap();
        let admissions = second.admit_batch(&mut transaction, &group, &batch).await.unwrap();
        second.commit(transaction).await.unwrap();
        admissions
    });
    assert!(
        tokio::time::timeout(SHORT_WAIT, &mut batch).await.is_err(),
        "the duplicate did not wait for the first transaction"
    );
    harness.database.commit(other_member).await.unwrap();
    let admissions =
        tokio::time::timeout(Duration::from_secs(60), batch).await.expect("the batch did not continue").unwrap();
    assert_eq!(admissions, [Admission::Duplicate, Admission::Held]);
}
