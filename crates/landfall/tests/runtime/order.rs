//! Order: lanes by key, by partition or none, and checked sequence numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use landfall::consume::{Early, Options, Order, SequenceCheck, handler_fn, plain};
use landfall::{Backoff, DeadLetterFilter, DeadLetterStatus, Failure, Message};
use landfall_testkit::eventually;

use crate::batches::{apply, batched};
use crate::database::TestDatabase;
use crate::fixture::{Fixture, TIMEOUT, message, options};
use crate::on_every_database;

on_every_database!(
    early_message_waits_for_its_predecessors,
    early_message_is_parked_after_its_wait_and_can_be_redriven,
    early_message_is_refused_and_redelivered,
    early_messages_leave_capacity_for_their_predecessors,
    stale_version_is_parked_without_holding_its_key,
    redriven_message_advances_the_sequence,
    stale_version_behind_a_parked_message_does_not_hold_its_key,
    unordered_failing_message_blocks_no_other,
    partition_order_handles_a_partition_sequentially,
    failing_key_does_not_block_the_receipt_of_others,
);

const WAIT: SequenceCheck = SequenceCheck::Consecutive { first: Some(1), early: Early::Wait(TIMEOUT) };

fn numbered(numbers: &[i64]) -> Vec<Message> {
    numbers.iter().map(|number| message("a", *number, "good")).collect()
}

async fn sequences<D: TestDatabase>(fixture: &Fixture<D>) -> Vec<i64> {
    fixture.database.effects().await.iter().filter_map(|effect| effect.sequence).collect()
}

async fn early_message_waits_for_its_predecessors<D: TestDatabase>(fixture: Fixture<D>) {
    // Two of them repeat a number under a new id.
    let messages = numbered(&[3, 1, 5, 2, 2, 4, 1, 8, 7, 6]);
    fixture.publish(&messages).await;
    for running in [
        fixture.consumer_in_sequence(batched(4, 2), WAIT, plain(apply::<D>)),
        // A second member works on the same entity at the same time.
        fixture.consumer_in_sequence(batched(1, 2), WAIT, plain(apply::<D>)),
    ] {
        fixture.effects_become(8).await;
        running.stop().await;
    }
    assert_eq!(sequences(&fixture).await, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert!(fixture.letters().await.is_empty());
    let again = fixture.consumer_in_sequence(options(), WAIT, plain(apply::<D>));
    fixture.publish(&numbered(&[8, 9])).await;
    fixture.effects_become(9).await;
    again.stop().await;
    assert_eq!(sequences(&fixture).await.last(), Some(&9));
    fixture.all_is_acknowledged().await;
}

async fn early_message_is_parked_after_its_wait_and_can_be_redriven<D: TestDatabase>(fixture: Fixture<D>) {
    for early in [Early::Wait(Duration::from_millis(50)), Early::Park] {
        let check = SequenceCheck::Consecutive { first: None, early };
        let start = sequences(&fixture).await.last().copied().unwrap_or(0);
        fixture.publish(&numbered(&[start + 1, start + 3])).await;
        let running = fixture.consumer_in_sequence(batched(10, 1), check, plain(apply::<D>));
        eventually(TIMEOUT, "the early message is parked", async || {
            fixture.database.dead_letter_stats().await.unwrap().parked == 1
        })
        .await;
        // The missing predecessor arrives and is not held by the parked message.
        fixture.publish(&numbered(&[start + 2])).await;
        fixture.effects_become(start as usize + 2).await;
        let parked = DeadLetterFilter { status: Some(DeadLetterStatus::Parked), ..Default::default() };
        assert_eq!(fixture.database.find(&parked, 10).await.unwrap()[0].error_code, "OUT_OF_ORDER");
        fixture.database.redrive(&parked, "test").await.unwrap();
        fixture.effects_become(start as usize + 3).await;
        running.stop().await;
    }
    assert_eq!(sequences(&fixture).await, [1, 2, 3, 4, 5, 6]);
    fixture.all_is_acknowledged().await;
}

async fn early_message_is_refused_and_redelivered<D: TestDatabase>(fixture: Fixture<D>) {
    let check = SequenceCheck::Consecutive { first: Some(1), early: Early::Refuse(Duration::from_millis(5)) };
    fixture.publish(&numbered(&[4, 3, 2, 1])).await;
    let running = fixture.consumer_in_sequence(batched(3, 1), check, plain(apply::<D>));
    fixture.effects_become(4).await;
    running.stop().await;
    assert_eq!(sequences(&fixture).await, [1, 2, 3, 4]);
    fixture.all_is_acknowledged().await;
}

/// Far more early messages than may be in flight, and their predecessors arrive last.
async fn early_messages_leave_capacity_for_their_predecessors<D: TestDatabase>(fixture: Fixture<D>) {
    let check = SequenceCheck::Consecutive { first: Some(1), early: Early::Wait(TIMEOUT * 4) };
    let (first, cap) = (Duration::from_millis(200), Duration::from_millis(500));
    let backoff = Backoff { first, cap, max_attempts: 3 };
    let narrow = Options { max_in_flight: Some(4), max_in_flight_per_lane: Some(2), backoff, ..batched(1, 2) };
    let running = fixture.consumer_in_sequence(narrow, check, plain(apply::<D>));
    fixture.publish(&numbered(&(1..=40).rev().collect::<Vec<_>>())).await;
    fixture.effects_become(40).await;
    running.stop().await;
    assert_eq!(sequences(&fixture).await, (1..=40).collect::<Vec<_>>());
    fixture.all_is_acknowledged().await;
}

async fn stale_version_is_parked_without_holding_its_key<D: TestDatabase>(fixture: Fixture<D>) {
    fixture.publish(&numbered(&[1, 3, 2, 3, 7])).await;
    let running = fixture.consumer_in_sequence(batched(3, 1), SequenceCheck::Newest, plain(apply::<D>));
    fixture.settle(4).await;
    running.stop().await;
    assert_eq!(sequences(&fixture).await, [1, 3, 7]);
    let letters = fixture.letters().await;
    assert_eq!((letters.len(), letters[0].error_code.as_str()), (1, "VERSION_CONFLICT"));
    assert_eq!((letters[0].sequence, letters[0].error.as_str()), (Some(2), "version 2 arrived after 3"));
    fixture.all_is_acknowledged().await;
}

async fn redriven_message_advances_the_sequence<D: TestDatabase>(fixture: Fixture<D>) {
    let broken = Arc::new(AtomicBool::new(true));
    let switch = broken.clone();
    let handler = handler_fn::<D, _>(move |context| {
        let fails = switch.load(Ordering::SeqCst) && context.message.sequence == Some(2);
        Box::pin(async move {
            apply(context).await?;
            if fails { Err(Failure::retry("not repaired yet")) } else { Ok(()) }
        })
    });
    let running = fixture.consumer_in_sequence(batched(2, 1), WAIT, handler);
    fixture.publish(&numbered(&[1, 2, 3])).await;
    fixture.settle(3).await;
    broken.store(false, Ordering::SeqCst);
    fixture.database.redrive(&DeadLetterFilter::default(), "test").await.unwrap();
    fixture.effects_become(3).await;
    fixture.publish(&numbered(&[4])).await;
    fixture.effects_become(4).await;
    running.stop().await;
    assert_eq!(sequences(&fixture).await, [1, 2, 3, 4]);
}

async fn stale_version_behind_a_parked_message_does_not_hold_its_key<D: TestDatabase>(fixture: Fixture<D>) {
    let broken = Arc::new(AtomicBool::new(true));
    let switch = broken.clone();
    let handler = handler_fn::<D, _>(move |context| {
        let fails = switch.load(Ordering::SeqCst) && context.message.sequence == Some(3);
        Box::pin(async move {
            apply(context).await?;
            if fails { Err(Failure::retry("not repaired yet")) } else { Ok(()) }
        })
    });
    let running = fixture.consumer_in_sequence(batched(2, 1), SequenceCheck::Newest, handler);
    fixture.publish(&numbered(&[1, 3, 2, 4])).await;
    fixture.settle(4).await;
    broken.store(false, Ordering::SeqCst);
    fixture.database.redrive(&DeadLetterFilter::default(), "test").await.unwrap();
    fixture.effects_become(3).await;
    fixture.publish(&numbered(&[5])).await;
    fixture.effects_become(4).await;
    running.stop().await;
    assert_eq!(sequences(&fixture).await, [1, 3, 4, 5]);
    let parked = DeadLetterFilter { status: Some(DeadLetterStatus::Parked), ..Default::default() };
    let parked = fixture.database.find(&parked, 10).await.unwrap();
    assert_eq!((parked.len(), parked[0].sequence, parked[0].error_code.as_str()), (1, Some(2), "VERSION_CONFLICT"));
}

async fn unordered_failing_message_blocks_no_other<D: TestDatabase>(fixture: Fixture<D>) {
    let messages = [message("a", 1, "poison"), message("a", 2, "failing"), message("a", 3, "good")];
    fixture.publish(&messages).await;
    let running = fixture.consumer(Options { order: Order::Unordered, ..batched(3, 1) }, plain(apply::<D>));
    fixture.settle(3).await;
    fixture.publish(&[message("a", 4, "good")]).await;
    fixture.effects_become(2).await;
    running.stop().await;
    assert_eq!(sequences(&fixture).await, [3, 4]);
    fixture.all_is_acknowledged().await;
}

async fn partition_order_handles_a_partition_sequentially<D: TestDatabase>(fixture: Fixture<D>) {
    let messages: Vec<_> =
        (1..=40).map(|n| message(&format!("key-{n}"), n, if n % 7 == 0 { "flaky" } else { "good" })).collect();
    fixture.publish(&messages).await;
    let running = fixture.consumer(Options { order: Order::ByPartition, ..batched(5, 4) }, plain(apply::<D>));
    fixture.effects_become(40).await;
    running.stop().await;
    // The in-memory broker has one partition: different keys, all in order.
    assert_eq!(sequences(&fixture).await, (1..=40).collect::<Vec<_>>());
}

async fn failing_key_does_not_block_the_receipt_of_others<D: TestDatabase>(fixture: Fixture<D>) {
    let mut messages = vec![message("stuck", 1, "failing")];
    messages.extend((2..=300).map(|n| message("stuck", n, "good")));
    messages.extend((1..=50).map(|n| message(&format!("key-{n}"), n, "good")));
    fixture.publish(&messages).await;
    // The head of the key is retried long after the test has ended.
    let backoff = Backoff { first: TIMEOUT * 2, cap: TIMEOUT * 2, max_attempts: 3 };
    let narrow =
        Options { max_in_flight: Some(40), max_in_flight_per_lane: Some(10), concurrency: 4, backoff, ..options() };
    let running = fixture.consumer(narrow, plain(apply::<D>));
    fixture.effects_become(50).await;
    running.stop().await;
    assert!(fixture.database.effects().await.iter().all(|effect| effect.key.as_deref() != Some("stuck")));
}
