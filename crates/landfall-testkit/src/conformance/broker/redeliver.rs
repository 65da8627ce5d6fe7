//! Redelivery: unacknowledged messages are redelivered, acknowledged ones are not.

use std::time::Duration;

use landfall_core::adapter::Subscriber;
use landfall_core::{Message, MessageId};
use tokio::time::Instant;

use super::harness::{close, consume_many, consume_one, next, receive_many};
use super::{BrokerFixture, Harness};
use crate::conformance::sample::{ids, keyed, series, sorted};

pub async fn acked_message_is_not_redelivered_to_the_next_member<F: BrokerFixture>(harness: Harness<F>) {
    let messages = series("a", 4);
    harness.publish(&messages[..3]).await;
    let mut subscriber = harness.subscribe("stock").await;
    consume_many(&mut subscriber, 3).await;
    close(subscriber).await;
    harness.publish(&messages[3..]).await;
    let mut subscriber = harness.subscribe("stock").await;
    assert_eq!(consume_one(&mut subscriber).await.id, messages[3].id);
}

pub async fn dropped_delivery_is_redelivered<F: BrokerFixture>(harness: Harness<F>) {
    let message = keyed("a", 1);
    harness.publish(std::slice::from_ref(&message)).await;
    let mut subscriber = harness.subscribe("stock").await;
    for _ in 0..3 {
        let delivery = next(&mut subscriber).await;
        assert_eq!(delivery.message.as_ref().unwrap(), &message);
        drop(delivery);
    }
    assert_eq!(consume_one(&mut subscriber).await, message);
}

pub async fn unacked_messages_of_a_closed_subscriber_are_redelivered<F: BrokerFixture>(harness: Harness<F>) {
    let messages = series("a", 3);
    harness.publish(&messages).await;
    let mut subscriber = harness.subscribe("stock").await;
    consume_one(&mut subscriber).await;
    drop(receive_many(&mut subscriber, 1).await);
    close(subscriber).await;
    let mut subscriber = harness.subscribe("stock").await;
    assert_eq!(sorted(ids(&consume_many(&mut subscriber, 2).await)), sorted(ids(&messages[1..])));
}

pub async fn unacked_messages_of_a_dropped_subscriber_are_redelivered<F: BrokerFixture>(harness: Harness<F>) {
    let messages = series("a", 3);
    harness.publish(&messages).await;
    let mut subscriber = harness.subscribe("stock").await;
    let held = receive_many(&mut subscriber, 2).await;
    drop(subscriber);
    drop(held);
    let mut subscriber = harness.subscribe("stock").await;
    assert_eq!(sorted(ids(&consume_many(&mut subscriber, 3).await)), sorted(ids(&messages)));
}

pub async fn nacked_message_is_redelivered_after_its_delay<F: BrokerFixture>(harness: Harness<F>) {
    let message = keyed("a", 1);
    harness.publish(std::slice::from_ref(&message)).await;
    let mut subscriber = harness.subscribe("stock").await;
    next(&mut subscriber).await.nack(Duration::ZERO).await.unwrap();

    let delay = Duration::from_millis(400);
    let delivery = next(&mut subscriber).await;
    let nacked = Instant::now();
    delivery.nack(delay).await.unwrap();
    assert_eq!(consume_one(&mut subscriber).await, message);
    if harness.capabilities().delayed_redelivery {
        assert!(nacked.elapsed() >= delay, "redelivered after {:?}", nacked.elapsed());
    }
}

pub async fn nack_delay_does_not_block_other_keys<F: BrokerFixture>(harness: Harness<F>) {
    let mut subscriber = harness.subscribe("stock").await;
    let failing = keyed("failing", 1);
    harness.publish(std::slice::from_ref(&failing)).await;
    next(&mut subscriber).await.nack(Duration::from_secs(3600)).await.unwrap();
    let others: Vec<_> = (0..20).map(|n| keyed(&format!("key-{n}"), 1)).collect();
    harness.publish(&others).await;
    assert_eq!(sorted(ids(&consume_many(&mut subscriber, others.len()).await)), sorted(ids(&others)));
}

/// Acknowledges messages 4, 1 and 2 of five messages of one key, and leaves 3 and 5.
pub(super) async fn ack_out_of_order(subscriber: &mut Box<dyn Subscriber>, messages: &[Message]) {
    let mut held = receive_many(subscriber, 5).await;
    for index in [3, 0, 1] {
        let found = held.iter().position(|delivery| delivery.message.as_ref().unwrap().id == messages[index].id);
        held.remove(found.expect("a message was not delivered")).ack().await.unwrap();
    }
}

/// Asserts that 3 and 5 are redelivered and that 1 and 2 are not. Brokers with offsets may also redeliver 4.
pub(super) async fn assert_rest_is_redelivered(subscriber: &mut Box<dyn Subscriber>, messages: &[Message]) {
    let mut missing: Vec<MessageId> = vec![messages[2].id, messages[4].id];
    while !missing.is_empty() {
        let redelivered = consume_one(subscriber).await;
        let sequence = redelivered.sequence.unwrap();
        assert!(sequence >= 3, "message {sequence} is in the acknowledged prefix");
        missing.retain(|id| *id != redelivered.id);
    }
}

pub async fn out_of_order_ack_loses_nothing<F: BrokerFixture>(harness: Harness<F>) {
    let messages = series("a", 5);
    harness.publish(&messages).await;
    let mut subscriber = harness.subscribe("stock").await;
    ack_out_of_order(&mut subscriber, &messages).await;
    close(subscriber).await;
    let mut subscriber = harness.subscribe("stock").await;
    assert_rest_is_redelivered(&mut subscriber, &messages).await;
}
