//! What a broker that calls itself durable still knows after it was stopped and started.

use landfall_core::StartAt;

use super::redeliver::{finish_out_of_order, the_rest_comes_again};
use super::stage::{close, hold_many, read_all, take, take_many};
use super::{BrokerFixture, Stage};
use crate::conformance::sample::{ids, keyless, series, sorted};

pub async fn what_was_accepted_is_there_after_a_restart<F: BrokerFixture>(stage: Stage<F>) {
    if !stage.capabilities().durable {
        return;
    }
    let mut messages = series("a", 20);
    messages.extend((0..20).map(|_| keyless()));
    stage.publish(&messages).await;
    let stage = stage.reopen().await.reopen().await;
    let mut subscriber = stage.subscribe("stock").await;
    let delivered = take_many(&mut subscriber, messages.len()).await;
    assert_eq!(sorted(ids(&delivered)), sorted(ids(&messages)));
    assert!(messages.iter().all(|message| delivered.contains(message)), "each is as it was sent");
}

pub async fn what_was_acknowledged_is_not_delivered_after_a_restart<F: BrokerFixture>(stage: Stage<F>) {
    if !stage.capabilities().durable {
        return;
    }
    let messages = series("a", 4);
    stage.publish(&messages[..3]).await;
    let mut subscriber = stage.subscribe("stock").await;
    take_many(&mut subscriber, 3).await;
    close(subscriber).await;
    let stage = stage.reopen().await;
    stage.publish(&messages[3..]).await;
    let mut subscriber = stage.subscribe("stock").await;
    assert_eq!(take(&mut subscriber).await.id, messages[3].id);
}

pub async fn what_was_not_acknowledged_is_delivered_after_a_restart<F: BrokerFixture>(stage: Stage<F>) {
    if !stage.capabilities().durable {
        return;
    }
    let messages = series("a", 3);
    stage.publish(&messages).await;
    let mut subscriber = stage.subscribe("stock").await;
    take(&mut subscriber).await;
    drop(hold_many(&mut subscriber, 1).await);
    close(subscriber).await;
    let stage = stage.reopen().await;
    let mut subscriber = stage.subscribe("stock").await;
    assert_eq!(sorted(ids(&take_many(&mut subscriber, 2).await)), sorted(ids(&messages[1..])));
}

pub async fn an_acknowledgement_out_of_order_loses_nothing_in_a_restart<F: BrokerFixture>(stage: Stage<F>) {
    if !stage.capabilities().durable {
        return;
    }
    let messages = series("a", 5);
    stage.publish(&messages).await;
    let mut subscriber = stage.subscribe("stock").await;
    finish_out_of_order(&mut subscriber, &messages).await;
    close(subscriber).await;
    let stage = stage.reopen().await;
    let mut subscriber = stage.subscribe("stock").await;
    the_rest_comes_again(&mut subscriber, &messages).await;
}

pub async fn offsets_go_on_after_a_restart<F: BrokerFixture>(stage: Stage<F>) {
    if !stage.capabilities().durable || !stage.capabilities().replay {
        return;
    }
    let messages = series("a", 4);
    let before = stage.publish(&messages[..2]).await;
    let stage = stage.reopen().await;
    let after = stage.publish(&messages[2..]).await;
    assert!(before.iter().max() < after.iter().min(), "{after:?} come after {before:?}");
    let stored = read_all(&mut stage.reader(StartAt::Beginning).await).await;
    let stored: Vec<_> = stored.into_iter().map(|stored| stored.message.unwrap().id).collect();
    assert_eq!(stored, ids(&messages));
}
