//! Delivery: all messages, to every group, in key order.

use std::time::Duration;

use landfall_core::Message;

use super::harness::{TIMEOUT, assert_ordered_by_key, close, consume_many, consume_one, next, receive_many};
use super::{BrokerFixture, Harness};
use crate::conformance::sample::{ids, keyed, keyless, series, sorted};

/// Interleaved messages of several keys.
fn interleaved(count: i64) -> Vec<Message> {
    (1..=count).flat_map(|n| ["a", "b", "c", "d"].map(|key| keyed(key, n))).collect()
}

pub async fn published_messages_are_delivered_in_key_order<F: BrokerFixture>(harness: Harness<F>) {
    let messages = interleaved(25);
    let mut subscriber = harness.subscribe("stock").await;
    for batch in messages.chunks(9) {
        harness.publish(batch).await;
    }
    let delivered = consume_many(&mut subscriber, messages.len()).await;
    assert_eq!(sorted(ids(&delivered)), sorted(ids(&messages)));
    if harness.capabilities().ordered_by_key {
        assert_ordered_by_key(&delivered);
    }
}

pub async fn new_group_starts_at_the_beginning<F: BrokerFixture>(harness: Harness<F>) {
    let messages = series("a", 3);
    harness.publish(&messages).await;
    let mut subscriber = harness.subscribe("stock").await;
    assert_eq!(sorted(ids(&consume_many(&mut subscriber, 3).await)), sorted(ids(&messages)));
}

pub async fn subscriber_can_join_before_its_topic_exists<F: BrokerFixture>(harness: Harness<F>) {
    let mut subscriber = harness.subscribe("stock").await;
    let waiting = tokio::time::timeout(Duration::from_millis(100), subscriber.next()).await;
    assert!(waiting.is_err(), "unexpected delivery: {waiting:?}");
    let message = keyed("a", 1);
    harness.publish(std::slice::from_ref(&message)).await;
    assert_eq!(consume_one(&mut subscriber).await.id, message.id);
}

pub async fn groups_are_independent<F: BrokerFixture>(harness: Harness<F>) {
    let messages = series("a", 5);
    harness.publish(&messages).await;
    let mut stock = harness.subscribe("stock").await;
    let mut payment = harness.subscribe("payment").await;
    assert_eq!(sorted(ids(&consume_many(&mut stock, 5).await)), sorted(ids(&messages)));
    close(stock).await;
    assert_eq!(sorted(ids(&consume_many(&mut payment, 5).await)), sorted(ids(&messages)));
}

pub async fn keyless_messages_are_delivered<F: BrokerFixture>(harness: Harness<F>) {
    let messages: Vec<_> = (0..20).map(|_| keyless()).collect();
    harness.publish(&messages).await;
    let mut subscriber = harness.subscribe("stock").await;
    let delivered = consume_many(&mut subscriber, messages.len()).await;
    assert!(delivered.iter().all(|message| message.key.is_none()));
    assert_eq!(sorted(ids(&delivered)), sorted(ids(&messages)));
}

pub async fn group_members_share_all_messages<F: BrokerFixture>(harness: Harness<F>) {
    let mut one = harness.subscribe("stock").await;
    let mut two = harness.subscribe("stock").await;
    let messages = interleaved(10);
    harness.publish(&messages).await;
    // A rebalance may deliver a message twice, so the case only requires that each reaches one of the members.
    let mut missing = ids(&messages);
    while !missing.is_empty() {
        let next = async {
            tokio::select! {
                delivery = one.next() => delivery,
                delivery = two.next() => delivery,
            }
        };
        let delivery = tokio::time::timeout(TIMEOUT, next).await.expect("no delivery within the time limit");
        let delivery = delivery.unwrap().expect("the broker closed the subscription");
        let id = delivery.message.as_ref().unwrap().id;
        // The ack fails if the partition has moved to the other member, which then receives the message.
        let _ = delivery.ack().await;
        missing.retain(|other| *other != id);
    }
}

pub async fn delivery_carries_its_position<F: BrokerFixture>(harness: Harness<F>) {
    let messages = interleaved(3);
    let positions = harness.publish(&messages).await;
    let mut subscriber = harness.subscribe("stock").await;
    for delivery in receive_many(&mut subscriber, messages.len()).await {
        let id = delivery.message.as_ref().unwrap().id;
        let index = messages.iter().position(|message| message.id == id).expect("the message was not published");
        assert_eq!(delivery.position, positions[index]);
        delivery.ack().await.unwrap();
    }
}

pub async fn next_is_cancellation_safe<F: BrokerFixture>(harness: Harness<F>) {
    let messages = interleaved(50);
    let (broker, sent) = (harness.broker(), messages.clone());
    let publisher = tokio::spawn(async move {
        for batch in sent.chunks(3) {
            super::harness::publish(&*broker.publisher(), batch).await;
        }
    });
    let mut subscriber = harness.subscribe("stock").await;
    let mut missing = ids(&messages);
    let mut attempt = 0_u64;
    while !missing.is_empty() {
        // Most attempts are cancelled as soon as no message is ready.
        attempt += 1;
        let timeout = Duration::from_micros(attempt % 5 * 300);
        if let Ok(delivery) = tokio::time::timeout(timeout, subscriber.next()).await {
            let delivery = delivery.unwrap().expect("the broker closed the subscription");
            let id = delivery.message.as_ref().unwrap().id;
            delivery.ack().await.unwrap();
            missing.retain(|other| *other != id);
        }
        tokio::task::yield_now().await;
    }
    publisher.await.unwrap();
    let last = keyed("last", 1);
    harness.publish(std::slice::from_ref(&last)).await;
    assert_eq!(next(&mut subscriber).await.message.unwrap().id, last.id);
}
