//! Order: lanes by key, by partition or none, and numbers that are checked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use landfall::consume::{Early, Options, Order, SequenceCheck, handler_fn, plain};
use landfall::{Backoff, DeadLetterFilter, DeadLetterStatus, Failure, Message};
use landfall_testkit::eventually;

use crate::batches::{apply, batched};
use crate::ground::{Ground, PATIENCE, message, options};
use crate::on_every_database;
use crate::place::Place;

on_every_database!(
    what_comes_too_early_waits_and_lets_its_predecessors_pass,
    what_waits_in_vain_is_parked_and_can_be_redriven,
    what_comes_too_early_is_refused_and_comes_again,
    what_comes_too_early_takes_no_room_from_what_it_waits_for,
    an_old_version_is_parked_and_holds_nobody,
    a_redriven_message_counts_like_any_other,
    an_old_version_that_waited_behind_a_parked_one_holds_nobody,
    without_order_a_failing_message_holds_nobody,
    a_partition_is_handled_one_after_the_other,
    a_failing_key_keeps_no_other_from_being_received,
);

const WAIT: SequenceCheck = SequenceCheck::Consecutive { first: Some(1), early: Early::Wait(PATIENCE) };

fn numbered(numbers: &[i64]) -> Vec<Message> {
    numbers.iter().map(|number| message("a", *number, "good")).collect()
}

async fn sequences<D: Place>(ground: &Ground<D>) -> Vec<i64> {
    ground.database.effects().await.iter().filter_map(|effect| effect.sequence).collect()
}

async fn what_comes_too_early_waits_and_lets_its_predecessors_pass<D: Place>(ground: Ground<D>) {
    // Also two that have the number of another, under a new id.
    let messages = numbered(&[3, 1, 5, 2, 2, 4, 1, 8, 7, 6]);
    ground.publish(&messages).await;
    for running in [
        ground.consumer_in_sequence(batched(4, 2), WAIT, plain(apply::<D>)),
        // A second member meets the same entity at the same time.
        ground.consumer_in_sequence(batched(1, 2), WAIT, plain(apply::<D>)),
    ] {
        ground.effects_become(8).await;
        running.stop().await;
    }
    assert_eq!(sequences(&ground).await, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert!(ground.letters().await.is_empty());
    let again = ground.consumer_in_sequence(options(), WAIT, plain(apply::<D>));
    ground.publish(&numbered(&[8, 9])).await;
    ground.effects_become(9).await;
    again.stop().await;
    assert_eq!(sequences(&ground).await.last(), Some(&9));
    ground.all_is_acknowledged().await;
}

async fn what_waits_in_vain_is_parked_and_can_be_redriven<D: Place>(ground: Ground<D>) {
    for early in [Early::Wait(Duration::from_millis(50)), Early::Park] {
        let check = SequenceCheck::Consecutive { first: None, early };
        let start = sequences(&ground).await.last().copied().unwrap_or(0);
        ground.publish(&numbered(&[start + 1, start + 3])).await;
        let running = ground.consumer_in_sequence(batched(10, 1), check, plain(apply::<D>));
        eventually(PATIENCE, "the third is parked", async || {
            ground.database.dead_letter_stats().await.unwrap().parked == 1
        })
        .await;
        // What was missing comes after all, and is not held up by it.
        ground.publish(&numbered(&[start + 2])).await;
        ground.effects_become(start as usize + 2).await;
        let parked = DeadLetterFilter { status: Some(DeadLetterStatus::Parked), ..Default::default() };
        assert_eq!(ground.database.find(&parked, 10).await.unwrap()[0].error_code, "OUT_OF_ORDER");
        ground.database.redrive(&parked, "test").await.unwrap();
        ground.effects_become(start as usize + 3).await;
        running.stop().await;
    }
    assert_eq!(sequences(&ground).await, [1, 2, 3, 4, 5, 6]);
    ground.all_is_acknowledged().await;
}

async fn what_comes_too_early_is_refused_and_comes_again<D: Place>(ground: Ground<D>) {
    let check = SequenceCheck::Consecutive { first: Some(1), early: Early::Refuse(Duration::from_millis(5)) };
    ground.publish(&numbered(&[4, 3, 2, 1])).await;
    let running = ground.consumer_in_sequence(batched(3, 1), check, plain(apply::<D>));
    ground.effects_become(4).await;
    running.stop().await;
    assert_eq!(sequences(&ground).await, [1, 2, 3, 4]);
    ground.all_is_acknowledged().await;
}

/// Far more of them than may be in flight, and what they wait for comes last.
async fn what_comes_too_early_takes_no_room_from_what_it_waits_for<D: Place>(ground: Ground<D>) {
    let check = SequenceCheck::Consecutive { first: Some(1), early: Early::Wait(PATIENCE * 4) };
    let (first, cap) = (Duration::from_millis(200), Duration::from_millis(500));
    let backoff = Backoff { first, cap, max_attempts: 3 };
    let narrow = Options { max_in_flight: Some(4), max_in_flight_per_lane: Some(2), backoff, ..batched(1, 2) };
    let running = ground.consumer_in_sequence(narrow, check, plain(apply::<D>));
    ground.publish(&numbered(&(1..=40).rev().collect::<Vec<_>>())).await;
    ground.effects_become(40).await;
    running.stop().await;
    assert_eq!(sequences(&ground).await, (1..=40).collect::<Vec<_>>());
    ground.all_is_acknowledged().await;
}

async fn an_old_version_is_parked_and_holds_nobody<D: Place>(ground: Ground<D>) {
    ground.publish(&numbered(&[1, 3, 2, 3, 7])).await;
    let running = ground.consumer_in_sequence(batched(3, 1), SequenceCheck::Newest, plain(apply::<D>));
    ground.settle(4).await;
    running.stop().await;
    assert_eq!(sequences(&ground).await, [1, 3, 7]);
    let letters = ground.letters().await;
    assert_eq!((letters.len(), letters[0].error_code.as_str()), (1, "VERSION_CONFLICT"));
    assert_eq!((letters[0].sequence, letters[0].error.as_str()), (Some(2), "version 2 arrived after 3"));
    ground.all_is_acknowledged().await;
}

async fn a_redriven_message_counts_like_any_other<D: Place>(ground: Ground<D>) {
    let broken = Arc::new(AtomicBool::new(true));
    let switch = broken.clone();
    let handler = handler_fn::<D, _>(move |context| {
        let fails = switch.load(Ordering::SeqCst) && context.message.sequence == Some(2);
        Box::pin(async move {
            apply(context).await?;
            if fails { Err(Failure::retry("not today")) } else { Ok(()) }
        })
    });
    let running = ground.consumer_in_sequence(batched(2, 1), WAIT, handler);
    ground.publish(&numbered(&[1, 2, 3])).await;
    ground.settle(3).await;
    broken.store(false, Ordering::SeqCst);
    ground.database.redrive(&DeadLetterFilter::default(), "test").await.unwrap();
    ground.effects_become(3).await;
    ground.publish(&numbered(&[4])).await;
    ground.effects_become(4).await;
    running.stop().await;
    assert_eq!(sequences(&ground).await, [1, 2, 3, 4]);
}

async fn an_old_version_that_waited_behind_a_parked_one_holds_nobody<D: Place>(ground: Ground<D>) {
    let broken = Arc::new(AtomicBool::new(true));
    let switch = broken.clone();
    let handler = handler_fn::<D, _>(move |context| {
        let fails = switch.load(Ordering::SeqCst) && context.message.sequence == Some(3);
        Box::pin(async move {
            apply(context).await?;
            if fails { Err(Failure::retry("not today")) } else { Ok(()) }
        })
    });
    let running = ground.consumer_in_sequence(batched(2, 1), SequenceCheck::Newest, handler);
    ground.publish(&numbered(&[1, 3, 2, 4])).await;
    ground.settle(4).await;
    broken.store(false, Ordering::SeqCst);
    ground.database.redrive(&DeadLetterFilter::default(), "test").await.unwrap();
    ground.effects_become(3).await;
    ground.publish(&numbered(&[5])).await;
    ground.effects_become(4).await;
    running.stop().await;
    assert_eq!(sequences(&ground).await, [1, 3, 4, 5]);
    let parked = DeadLetterFilter { status: Some(DeadLetterStatus::Parked), ..Default::default() };
    let parked = ground.database.find(&parked, 10).await.unwrap();
    assert_eq!((parked.len(), parked[0].sequence, parked[0].error_code.as_str()), (1, Some(2), "VERSION_CONFLICT"));
}

async fn without_order_a_failing_message_holds_nobody<D: Place>(ground: Ground<D>) {
    let messages = [message("a", 1, "poison"), message("a", 2, "failing"), message("a", 3, "good")];
    ground.publish(&messages).await;
    let running = ground.consumer(Options { order: Order::Unordered, ..batched(3, 1) }, plain(apply::<D>));
    ground.settle(3).await;
    ground.publish(&[message("a", 4, "good")]).await;
    ground.effects_become(2).await;
    running.stop().await;
    assert_eq!(sequences(&ground).await, [3, 4]);
    ground.all_is_acknowledged().await;
}

async fn a_partition_is_handled_one_after_the_other<D: Place>(ground: Ground<D>) {
    let messages: Vec<_> =
        (1..=40).map(|n| message(&format!("key-{n}"), n, if n % 7 == 0 { "flaky" } else { "good" })).collect();
    ground.publish(&messages).await;
    let running = ground.consumer(Options { order: Order::ByPartition, ..batched(5, 4) }, plain(apply::<D>));
    ground.effects_become(40).await;
    running.stop().await;
    // The broker in memory has one partition: other keys, and yet not one of them out of order.
    assert_eq!(sequences(&ground).await, (1..=40).collect::<Vec<_>>());
}

async fn a_failing_key_keeps_no_other_from_being_received<D: Place>(ground: Ground<D>) {
    let mut messages = vec![message("stuck", 1, "failing")];
    messages.extend((2..=300).map(|n| message("stuck", n, "good")));
    messages.extend((1..=50).map(|n| message(&format!("key-{n}"), n, "good")));
    ground.publish(&messages).await;
    // The head of the key is tried again long after the test is over.
    let backoff = Backoff { first: PATIENCE * 2, cap: PATIENCE * 2, max_attempts: 3 };
    let narrow =
        Options { max_in_flight: Some(40), max_in_flight_per_lane: Some(10), concurrency: 4, backoff, ..options() };
    let running = ground.consumer(narrow, plain(apply::<D>));
    ground.effects_become(50).await;
    running.stop().await;
    assert!(ground.database.effects().await.iter().all(|effect| effect.key.as_deref() != Some("stuck")));
}
