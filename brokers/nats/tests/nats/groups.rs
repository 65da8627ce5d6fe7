//! Group members share the shards, and a member that lost a shard can acknowledge nothing in it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::StreamExt;
use landfall_core::adapter::{Delivery, Subscriber};
use landfall_core::{Broker, ErrorKind, Message, Outcome, StartAt, TopicAdministration};
use landfall_testkit::eventually;
use landfall_testkit::proxy::Proxy;
use landfall_testkit::traffic::{keyed, orders, stock};

use crate::support::{SOON, connect, publish_raw, shared};

async fn join(broker: &impl Broker) -> Box<dyn Subscriber> {
    broker.subscribe(&orders(), &stock()).await.unwrap()
}

async fn next(subscriber: &mut Box<dyn Subscriber>) -> Delivery {
    tokio::time::timeout(SOON, subscriber.next()).await.expect("a delivery arrives in time").unwrap().unwrap()
}

async fn publish(broker: &impl Broker, messages: &[Message]) {
    let outcomes = broker.publisher().publish(messages).await;
    assert!(outcomes.iter().all(Outcome::is_accepted), "{outcomes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn members_share_shards_and_each_key_has_one_member() {
    let Some(server) = shared().await else { return };
    let broker = connect(&format!("{}?prefix=share.&partitions=4&session_timeout=2s", server.url())).await;
    let (mut one, mut two) = (join(&broker).await, join(&broker).await);
    // Until the shards are balanced, one member receives everything.
    let mut number = 0;
    let mut members: BTreeMap<String, BTreeSet<u8>> = BTreeMap::new();
    while !(members.values().any(|by| by.contains(&1)) && members.values().any(|by| by.contains(&2))) {
        number += 1;
        assert!(number < 500, "one member never receives a delivery");
        members.clear();
        let batch: Vec<_> = (0..16).map(|key| keyed(&format!("key-{key}"), number)).collect();
        publish(&broker, &batch).await;
        let mut missing: BTreeSet<_> = batch.iter().map(|message| message.id).collect();
        while !missing.is_empty() {
            let (delivery, member) = tokio::select! {
                delivery = one.next() => (delivery.unwrap().unwrap(), 1),
                delivery = two.next() => (delivery.unwrap().unwrap(), 2),
                () = tokio::time::sleep(SOON) => panic!("deliveries are missing"),
            };
            let message = delivery.message.as_ref().unwrap();
            if missing.remove(&message.id) {
                members.entry(message.key.as_ref().unwrap().to_string()).or_default().insert(member);
            }
            // Fails if the shard has moved between the two members.
            let _ = delivery.ack().await;
        }
    }
    assert!(members.values().all(|by| by.len() == 1), "{members:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_member_loses_its_shards_and_cannot_acknowledge() {
    let Some(server) = shared().await else { return };
    let proxy = Proxy::start(server.address().parse::<std::net::SocketAddr>().unwrap()).await.unwrap();
    let parameters = "prefix=silent.&partitions=1&session_timeout=1s&timeout=5s";
    let direct = connect(&format!("{}?{parameters}", server.url())).await;
    let behind_the_proxy = connect(&format!("{}?{parameters}", proxy.url(&server.url()))).await;
    let messages: Vec<_> = (1..=200).map(|number| keyed("a", number)).collect();
    publish(&direct, &messages).await;

    let mut silent = join(&behind_the_proxy).await;
    next(&mut silent).await.ack().await.unwrap();
    let mut unacknowledged = Vec::new();
    while unacknowledged.len() < messages.len() - 1 {
        unacknowledged.push(next(&mut silent).await);
    }
    // From now on, nothing that the member sends arrives.
    proxy.delay(Duration::from_secs(3600));

    let mut other = join(&direct).await;
    let mut redelivered = Vec::new();
    while redelivered.last() != Some(&messages[199].id) {
        let delivery = next(&mut other).await;
        redelivered.push(delivery.message.as_ref().unwrap().id);
        delivery.ack().await.unwrap();
    }
    // Everything unacknowledged, in order. The acknowledgement of the first message may have been lost.
    let rest: Vec<_> = messages[1..].iter().map(|message| message.id).collect();
    assert!(redelivered.ends_with(&rest) && redelivered.len() <= messages.len(), "{} deliveries", redelivered.len());

    proxy.heal();
    proxy.cut_all();
    eventually(SOON, "the member learns that it lost the shard", async || {
        let acknowledged = unacknowledged.pop().expect("unacknowledged deliveries remain").ack().await;
        acknowledged.is_err_and(|error| error.kind() == ErrorKind::Conflict)
    })
    .await;
    drop((unacknowledged, silent));
    let last = keyed("a", 201);
    publish(&direct, std::slice::from_ref(&last)).await;
    assert_eq!(next(&mut other).await.message.unwrap().id, last.id);
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_stop_at_the_in_flight_limit() {
    let Some(server) = shared().await else { return };
    let broker = connect(&format!("{}?prefix=bounded.&partitions=2&in_flight=5&prefetch=2", server.url())).await;
    let messages: Vec<_> = (0..40).map(|number| keyed(&format!("key-{number}"), 1)).collect();
    publish(&broker, &messages).await;
    let mut subscriber = join(&broker).await;
    let mut unacknowledged = Vec::new();
    for _ in 0..5 {
        unacknowledged.push(next(&mut subscriber).await);
    }
    let more = tokio::time::timeout(Duration::from_millis(300), subscriber.next()).await;
    assert!(more.is_err(), "a sixth delivery arrived: {more:?}");
    for _ in 5..40 {
        unacknowledged.remove(0).ack().await.unwrap();
        unacknowledged.push(next(&mut subscriber).await);
    }
}

/// The server acknowledges a message before its consumers see it.
#[tokio::test(flavor = "multi_thread")]
async fn reader_sees_a_message_right_after_its_acceptance() {
    let Some(server) = shared().await else { return };
    let broker = connect(&format!("{}?prefix=moment.", server.url())).await;
    let publisher = broker.publisher();
    assert!(publisher.publish(&[keyed("a", 0)]).await[0].is_accepted());
    let mut reader = broker.read(&orders(), StartAt::Beginning).await.unwrap();
    assert_eq!(reader.read(10).await.unwrap().len(), 1);
    for number in 1..500 {
        assert!(reader.read(10).await.unwrap().is_empty());
        assert!(publisher.publish(&[keyed("a", number)]).await[0].is_accepted());
        assert_eq!(reader.read(10).await.unwrap().len(), 1, "message {number}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn recreated_topic_is_read_from_the_beginning() {
    let Some(server) = shared().await else { return };
    let broker = connect(&format!("{}?prefix=recreated.&session_timeout=2s&partitions=2", server.url())).await;
    let mut subscriber = broker.subscribe(&orders(), &stock()).await.unwrap();
    let publisher = broker.publisher();
    for number in 0..50 {
        assert!(publisher.publish(&[keyed("a", number)]).await[0].is_accepted());
        let delivery = tokio::time::timeout(SOON, subscriber.next()).await.unwrap().unwrap().unwrap();
        delivery.ack().await.unwrap();
    }
    // Another client recreates the topic, so the first one is not informed.
    let other = connect(&format!("{}?prefix=recreated.&partitions=4", server.url())).await;
    assert!(other.delete_topic(&orders()).await.unwrap());
    assert!(other.create_topic(&orders(), Some(4)).await.unwrap());
    let again: Vec<_> = (0..8).map(|number| keyed(&format!("key-{number}"), 100)).collect();
    let published = async || other.publisher().publish(&again).await.iter().all(Outcome::is_accepted);
    eventually(SOON, "the new topic accepts the messages", published).await;
    let mut missing: BTreeSet<_> = again.iter().map(|message| message.id).collect();
    while !missing.is_empty() {
        let delivery = tokio::time::timeout(SOON, subscriber.next())
            .await
            .expect("all messages are delivered in time")
            .unwrap()
            .unwrap();
        missing.remove(&delivery.message.as_ref().unwrap().id);
        let _ = delivery.ack().await;
    }
}

/// If the member believed the forged status and gave the shard up, no other member would take it.
#[tokio::test(flavor = "multi_thread")]
async fn forged_consumer_deleted_status_does_not_stop_a_shard() {
    let Some(server) = shared().await else { return };
    let observer = async_nats::connect(server.url()).await.unwrap();
    let mut pulls = observer.subscribe("$JS.API.CONSUMER.MSG.NEXT.gone=orders.>").await.unwrap();
    observer.flush().await.unwrap();
    let broker = connect(&format!("{}?prefix=gone.&partitions=1&session_timeout=2s", server.url())).await;
    let mut subscriber = join(&broker).await;
    for number in 1..=3 {
        let pull = tokio::time::timeout(SOON, pulls.next()).await.expect("the member pulls from the shard").unwrap();
        publish(&broker, &[keyed("a", number)]).await;
        let delivery = next(&mut subscriber).await;
        assert_eq!(delivery.position.offset, number as u64);
        delivery.ack().await.unwrap();
        publish_raw(&server, &pull.reply.unwrap(), b"NATS/1.0 409 Consumer Deleted\r\n\r\n", b"").await;
    }
}
