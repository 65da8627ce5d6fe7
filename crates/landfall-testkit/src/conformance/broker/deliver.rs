//! Delivery: everything, to every group, in order per key.

use std::time::Duration;

use landfall_core::Message;

use super::stage::{SOON, assert_ordered_by_key, close, hold_many, next, take, take_many};
use super::{BrokerFixture, Stage};
use crate::conformance::sample::{ids, keyed, keyless, series, sorted};

/// Interleaved messages of several keys.
fn interleaved(count: i64) -> Vec<Message> {
    (1..=count).flat_map(|n| ["a", "b", "c", "d"].map(|key| keyed(key, n))).collect()
}

pub async fn what_was_published_is_delivered_in_order_per_key<F: BrokerFixture>(stage: Stage<F>) {
    let messages = interleaved(25);
    let mut subscriber = stage.subscribe("stock").await;
    for batch in messages.chunks(9) {
        stage.publish(batch).await;
    }
    let delivered = take_many(&mut subscriber, messages.len()).await;
    assert_eq!(sorted(ids(&delivered)), sorted(ids(&messages)));
    if stage.capabilities().ordered_by_key {
        assert_ordered_by_key(&delivered);
    }
}

pub async fn a_new_group_starts_at_the_beginning<F: BrokerFixture>(stage: Stage<F>) {
    if !stage.capabilities().replay {
        return;
    }
    let messages = series("a", 3);
    stage.publish(&messages).await;
    let mut subscriber = stage.subscribe("stock").await;
    assert_eq!(sorted(ids(&take_many(&mut subscriber, 3).await)), sorted(ids(&messages)));
}

pub async fn a_subscriber_may_come_before_its_topic<F: BrokerFixture>(stage: Stage<F>) {
    let mut subscriber = stage.subscribe("stock").await;
    let waiting = tokio::time::timeout(Duration::from_millis(100), subscriber.next()).await;
    assert!(waiting.is_err(), "there is nothing yet: {waiting:?}");
    let message = keyed("a", 1);
    stage.publish(std::slice::from_ref(&message)).await;
    assert_eq!(take(&mut subscriber).await.id, message.id);
}

pub async fn groups_are_independent<F: BrokerFixture>(stage: Stage<F>) {
    if !stage.capabilities().groups {
        return;
    }
    let messages = series("a", 5);
    stage.publish(&messages).await;
    let mut stock = stage.subscribe("stock").await;
    let mut payment = stage.subscribe("payment").await;
    assert_eq!(sorted(ids(&take_many(&mut stock, 5).await)), sorted(ids(&messages)));
    close(stock).await;
    assert_eq!(sorted(ids(&take_many(&mut payment, 5).await)), sorted(ids(&messages)));
}

pub async fn messages_without_a_key_are_delivered<F: BrokerFixture>(stage: Stage<F>) {
    let messages: Vec<_> = (0..20).map(|_| keyless()).collect();
    stage.publish(&messages).await;
    let mut subscriber = stage.subscribe("stock").await;
    let delivered = take_many(&mut subscriber, messages.len()).await;
    assert!(delivered.iter().all(|message| message.key.is_none()));
    assert_eq!(sorted(ids(&delivered)), sorted(ids(&messages)));
}

pub async fn members_of_a_group_get_everything_between_them<F: BrokerFixture>(stage: Stage<F>) {
    let mut one = stage.subscribe("stock").await;
    let mut two = stage.subscribe("stock").await;
    let messages = interleaved(10);
    stage.publish(&messages).await;
    // A message may come twice when members come and go, so what counts is that each came to one of them.
    let mut missing = ids(&messages);
    while !missing.is_empty() {
        let next = async {
            tokio::select! {
                delivery = one.next() => delivery,
                delivery = two.next() => delivery,
            }
        };
        let delivery = tokio::time::timeout(SOON, next).await.expect("a delivery comes soon");
        let delivery = delivery.unwrap().expect("the broker is not closed");
        let id = delivery.message.as_ref().unwrap().id;
        // Its partition may have moved to the other meanwhile, and then it comes there.
        let _ = delivery.ack().await;
        missing.retain(|other| *other != id);
    }
}

pub async fn a_delivery_knows_its_position<F: BrokerFixture>(stage: Stage<F>) {
    if !stage.capabilities().replay {
        return;
    }
    let messages = interleaved(3);
    let positions = stage.publish(&messages).await;
    let mut subscriber = stage.subscribe("stock").await;
    for delivery in hold_many(&mut subscriber, messages.len()).await {
        let id = delivery.message.as_ref().unwrap().id;
        let place = messages.iter().position(|message| message.id == id).expect("one of those published");
        assert_eq!(delivery.position, positions[place]);
        delivery.ack().await.unwrap();
    }
}

pub async fn dropping_the_future_of_next_loses_nothing<F: BrokerFixture>(stage: Stage<F>) {
    let messages = interleaved(50);
    let (broker, sent) = (stage.broker(), messages.clone());
    let publisher = tokio::spawn(async move {
        for batch in sent.chunks(3) {
            super::stage::publish(&*broker.publisher(), batch).await;
        }
    });
    let mut subscriber = stage.subscribe("stock").await;
    let mut missing = ids(&messages);
    let mut turn = 0_u64;
    while !missing.is_empty() {
        // Most of these give up at the first moment in which nothing is there.
        turn += 1;
        let patience = Duration::from_micros(turn % 5 * 300);
        if let Ok(delivery) = tokio::time::timeout(patience, subscriber.next()).await {
            let delivery = delivery.unwrap().expect("the broker is not closed");
            let id = delivery.message.as_ref().unwrap().id;
            delivery.ack().await.unwrap();
            missing.retain(|other| *other != id);
        }
        tokio::task::yield_now().await;
    }
    publisher.await.unwrap();
    let last = keyed("last", 1);
    stage.publish(std::slice::from_ref(&last)).await;
    assert_eq!(next(&mut subscriber).await.message.unwrap().id, last.id);
}
