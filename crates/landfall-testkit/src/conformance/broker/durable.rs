//! Durability: what a broker with the capability `durable` keeps across a restart.

use landfall_core::StartAt;

use super::harness::{close, consume_many, consume_one, read_all, receive_many};
use super::redeliver::{ack_out_of_order, assert_rest_is_redelivered};
use super::{BrokerFixture, Harness};
use crate::conformance::sample::{ids, keyless, series, sorted};

pub async fn accepted_messages_survive_a_restart<F: BrokerFixture>(harness: Harness<F>) {
    let mut messages = series("a", 20);
    messages.extend((0..20).map(|_| keyless()));
    harness.publish(&messages).await;
    let harness = harness.reopen().await.reopen().await;
    let mut subscriber = harness.subscribe("stock").await;
    let delivered = consume_many(&mut subscriber, messages.len()).await;
    assert_eq!(sorted(ids(&delivered)), sorted(ids(&messages)));
    assert!(messages.iter().all(|message| delivered.contains(message)), "a message changed");
}

pub async fn acked_messages_are_not_redelivered_after_a_restart<F: BrokerFixture>(harness: Harness<F>) {
    let messages = series("a", 4);
    harness.publish(&messages[..3]).await;
    let mut subscriber = harness.subscribe("stock").await;
    consume_many(&mut subscriber, 3).await;
    close(subscriber).await;
    let harness = harness.reopen().await;
    harness.publish(&messages[3..]).await;
    let mut subscriber = harness.subscribe("stock").await;
    assert_eq!(consume_one(&mut subscriber).await.id, messages[3].id);
}

pub async fn unacked_messages_are_redelivered_after_a_restart<F: BrokerFixture>(harness: Harness<F>) {
    let messages = series("a", 3);
    harness.publish(&messages).await;
    let mut subscriber = harness.subscribe("stock").await;
    consume_one(&mut subscriber).await;
    drop(receive_many(&mut subscriber, 1).await);
    close(subscriber).await;
    let harness = harness.reopen().await;
    let mut subscriber = harness.subscribe("stock").await;
    assert_eq!(sorted(ids(&consume_many(&mut subscriber, 2).await)), sorted(ids(&messages[1..])));
}

pub async fn out_of_order_ack_loses_nothing_in_a_restart<F: BrokerFixture>(harness: Harness<F>) {
    let messages = series("a", 5);
    harness.publish(&messages).await;
    let mut subscriber = harness.subscribe("stock").await;
    ack_out_of_order(&mut subscriber, &messages).await;
    close(subscriber).await;
    let harness = harness.reopen().await;
    let mut subscriber = harness.subscribe("stock").await;
    assert_rest_is_redelivered(&mut subscriber, &messages).await;
}

pub async fn offsets_continue_after_a_restart<F: BrokerFixture>(harness: Harness<F>) {
    let messages = series("a", 4);
    let before = harness.publish(&messages[..2]).await;
    let harness = harness.reopen().await;
    let after = harness.publish(&messages[2..]).await;
    assert!(before.iter().max() < after.iter().min(), "offsets {after:?} do not follow {before:?}");
    let stored = read_all(&mut harness.reader(StartAt::Beginning).await).await;
    let stored: Vec<_> = stored.into_iter().map(|stored| stored.message.unwrap().id).collect();
    assert_eq!(stored, ids(&messages));
}
