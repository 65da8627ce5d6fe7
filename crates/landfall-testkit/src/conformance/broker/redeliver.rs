//! What is not acknowledged comes again, and what is acknowledged does not.

use std::time::Duration;

use landfall_core::{Message, MessageId, Subscriber};
use tokio::time::Instant;

use super::stage::{close, hold_many, next, take, take_many};
use super::{BrokerFixture, Stage};
use crate::conformance::sample::{ids, keyed, series, sorted};

pub async fn what_was_acknowledged_is_not_delivered_to_the_next_member<F: BrokerFixture>(stage: Stage<F>) {
    let messages = series("a", 4);
    stage.publish(&messages[..3]).await;
    let mut subscriber = stage.subscribe("stock").await;
    take_many(&mut subscriber, 3).await;
    close(subscriber).await;
    stage.publish(&messages[3..]).await;
    let mut subscriber = stage.subscribe("stock").await;
    assert_eq!(take(&mut subscriber).await.id, messages[3].id);
}

pub async fn a_dropped_delivery_comes_again<F: BrokerFixture>(stage: Stage<F>) {
    let message = keyed("a", 1);
    stage.publish(std::slice::from_ref(&message)).await;
    let mut subscriber = stage.subscribe("stock").await;
    for _ in 0..3 {
        let delivery = next(&mut subscriber).await;
        assert_eq!(delivery.message.as_ref().unwrap(), &message);
        drop(delivery);
    }
    assert_eq!(take(&mut subscriber).await, message);
}

pub async fn what_a_closed_subscriber_left_comes_to_the_next_member<F: BrokerFixture>(stage: Stage<F>) {
    let messages = series("a", 3);
    stage.publish(&messages).await;
    let mut subscriber = stage.subscribe("stock").await;
    take(&mut subscriber).await;
    drop(hold_many(&mut subscriber, 1).await);
    close(subscriber).await;
    let mut subscriber = stage.subscribe("stock").await;
    assert_eq!(sorted(ids(&take_many(&mut subscriber, 2).await)), sorted(ids(&messages[1..])));
}

pub async fn what_a_dropped_subscriber_left_comes_to_the_next_member<F: BrokerFixture>(stage: Stage<F>) {
    let messages = series("a", 3);
    stage.publish(&messages).await;
    let mut subscriber = stage.subscribe("stock").await;
    let held = hold_many(&mut subscriber, 2).await;
    drop(subscriber);
    drop(held);
    let mut subscriber = stage.subscribe("stock").await;
    assert_eq!(sorted(ids(&take_many(&mut subscriber, 3).await)), sorted(ids(&messages)));
}

pub async fn what_was_given_back_comes_again_after_its_delay<F: BrokerFixture>(stage: Stage<F>) {
    let message = keyed("a", 1);
    stage.publish(std::slice::from_ref(&message)).await;
    let mut subscriber = stage.subscribe("stock").await;
    next(&mut subscriber).await.nack(Duration::ZERO).await.unwrap();

    let delay = Duration::from_millis(400);
    let delivery = next(&mut subscriber).await;
    let given_back = Instant::now();
    delivery.nack(delay).await.unwrap();
    assert_eq!(take(&mut subscriber).await, message);
    if stage.capabilities().delayed_redelivery {
        assert!(given_back.elapsed() >= delay, "it came again after {:?}", given_back.elapsed());
    }
}

pub async fn giving_one_back_does_not_hold_up_other_keys<F: BrokerFixture>(stage: Stage<F>) {
    if !stage.capabilities().delayed_redelivery {
        return;
    }
    let mut subscriber = stage.subscribe("stock").await;
    let failing = keyed("failing", 1);
    stage.publish(std::slice::from_ref(&failing)).await;
    next(&mut subscriber).await.nack(Duration::from_secs(3600)).await.unwrap();
    let others: Vec<_> = (0..20).map(|n| keyed(&format!("key-{n}"), 1)).collect();
    stage.publish(&others).await;
    assert_eq!(sorted(ids(&take_many(&mut subscriber, others.len()).await)), sorted(ids(&others)));
}

/// Acknowledges 1, 2 and 4 of five messages of one key and leaves 3 and 5.
pub(super) async fn finish_out_of_order(subscriber: &mut Box<dyn Subscriber>, messages: &[Message]) {
    let mut held = hold_many(subscriber, 5).await;
    for index in [3, 0, 1] {
        let place = held.iter().position(|delivery| delivery.message.as_ref().unwrap().id == messages[index].id);
        held.remove(place.expect("each of the five was delivered")).ack().await.unwrap();
    }
}

/// What comes again must hold 3 and 5 (or something was lost), may hold 4 (brokers with offsets cannot skip it), and
/// must not hold the finished prefix.
pub(super) async fn the_rest_comes_again(subscriber: &mut Box<dyn Subscriber>, messages: &[Message]) {
    let mut missing: Vec<MessageId> = vec![messages[2].id, messages[4].id];
    while !missing.is_empty() {
        let again = take(subscriber).await;
        let number = again.sequence.unwrap();
        assert!(number >= 3, "number {number} was finished, and so was everything before it");
        missing.retain(|id| *id != again.id);
    }
}

pub async fn an_acknowledgement_out_of_order_loses_nothing<F: BrokerFixture>(stage: Stage<F>) {
    let messages = series("a", 5);
    stage.publish(&messages).await;
    let mut subscriber = stage.subscribe("stock").await;
    finish_out_of_order(&mut subscriber, &messages).await;
    close(subscriber).await;
    let mut subscriber = stage.subscribe("stock").await;
    the_rest_comes_again(&mut subscriber, &messages).await;
}
