//! Members of a group: they share the shards, and whoever lost one can finish nothing in it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::StreamExt;
use landfall_core::{Broker, Delivery, ErrorKind, Message, Outcome, StartAt, Subscriber, TopicAdministration};
use landfall_testkit::eventually;
use landfall_testkit::proxy::Proxy;
use landfall_testkit::traffic::{keyed, orders, stock};

use crate::support::{SOON, connect, publish_raw, shared};

async fn join(broker: &impl Broker) -> Box<dyn Subscriber> {
    broker.subscribe(&orders(), &stock()).await.unwrap()
}

async fn next(subscriber: &mut Box<dyn Subscriber>) -> Delivery {
    tokio::time::timeout(SOON, subscriber.next()).await.expect("a delivery comes soon").unwrap().unwrap()
}

async fn publish(broker: &impl Broker, messages: &[Message]) {
    let outcomes = broker.publisher().publish(messages).await;
    assert!(outcomes.iter().all(Outcome::is_accepted), "{outcomes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_member_gets_its_share_and_each_key_comes_to_one_of_them() {
    let Some(server) = shared().await else { return };
    let broker = connect(&format!("{}?prefix=share.&partitions=4&session_timeout=2s", server.url())).await;
    let (mut one, mut two) = (join(&broker).await, join(&broker).await);
    // Until both have a share, what is published comes to one of them.
    let mut number = 0;
    let mut members: BTreeMap<String, BTreeSet<u8>> = BTreeMap::new();
    while !(members.values().any(|by| by.contains(&1)) && members.values().any(|by| by.contains(&2))) {
        number += 1;
        assert!(number < 500, "one of them never gets anything");
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
            // A shard may move between the two.
            let _ = delivery.ack().await;
        }
    }
    assert!(members.values().all(|by| by.len() == 1), "{members:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_not_heard_loses_its_shards_and_can_finish_nothing_more() {
    let Some(server) = shared().await else { return };
    let proxy = Proxy::start(server.address().parse::<std::net::SocketAddr>().unwrap()).await.unwrap();
    let parameters = "prefix=silent.&partitions=1&session_timeout=1s&timeout=5s";
    let direct = connect(&format!("{}?{parameters}", server.url())).await;
    let behind_the_proxy = connect(&format!("{}?{parameters}", proxy.url(&server.url()))).await;
    let messages: Vec<_> = (1..=200).map(|number| keyed("a", number)).collect();
    publish(&direct, &messages).await;

    let mut silent = join(&behind_the_proxy).await;
    next(&mut silent).await.ack().await.unwrap();
    let mut held = Vec::new();
    while held.len() < messages.len() - 1 {
        held.push(next(&mut silent).await);
    }
    // Nothing that it says arrives any more.
    proxy.delay(Duration::from_secs(3600));

    let mut other = join(&direct).await;
    let mut taken = Vec::new();
    while taken.last() != Some(&messages[199].id) {
        let delivery = next(&mut other).await;
        taken.push(delivery.message.as_ref().unwrap().id);
        delivery.ack().await.unwrap();
    }
    // From where it was finished, in order; that the first one was finished may not have been heard.
    let rest: Vec<_> = messages[1..].iter().map(|message| message.id).collect();
    assert!(taken.ends_with(&rest) && taken.len() <= messages.len(), "{} came", taken.len());

    proxy.heal();
    proxy.cut_all();
    eventually(SOON, "the member knows that the shard is gone", async || {
        let acknowledged = held.pop().expect("there are enough of them").ack().await;
        acknowledged.is_err_and(|error| error.kind() == ErrorKind::Conflict)
    })
    .await;
    drop((held, silent));
    let last = keyed("a", 201);
    publish(&direct, std::slice::from_ref(&last)).await;
    assert_eq!(next(&mut other).await.message.unwrap().id, last.id);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_is_handed_out_than_may_be_in_flight() {
    let Some(server) = shared().await else { return };
    let broker = connect(&format!("{}?prefix=bounded.&partitions=2&in_flight=5&prefetch=2", server.url())).await;
    let messages: Vec<_> = (0..40).map(|number| keyed(&format!("key-{number}"), 1)).collect();
    publish(&broker, &messages).await;
    let mut subscriber = join(&broker).await;
    let mut held = Vec::new();
    for _ in 0..5 {
        held.push(next(&mut subscriber).await);
    }
    let more = tokio::time::timeout(Duration::from_millis(300), subscriber.next()).await;
    assert!(more.is_err(), "a sixth came: {more:?}");
    for _ in 5..40 {
        held.remove(0).ack().await.unwrap();
        held.push(next(&mut subscriber).await);
    }
}

/// The server confirms a message before it tells its consumers.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_accepted_a_moment_ago_is_there_for_a_reader() {
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
async fn a_topic_that_was_removed_and_made_again_is_read_from_its_beginning() {
    let Some(server) = shared().await else { return };
    let broker = connect(&format!("{}?prefix=anew.&session_timeout=2s&partitions=2", server.url())).await;
    let mut subscriber = broker.subscribe(&orders(), &stock()).await.unwrap();
    let publisher = broker.publisher();
    for number in 0..50 {
        assert!(publisher.publish(&[keyed("a", number)]).await[0].is_accepted());
        let delivery = tokio::time::timeout(SOON, subscriber.next()).await.unwrap().unwrap().unwrap();
        delivery.ack().await.unwrap();
    }
    // By somebody else, so that this one does not know.
    let other = connect(&format!("{}?prefix=anew.&partitions=4", server.url())).await;
    assert!(other.delete_topic(&orders()).await.unwrap());
    assert!(other.create_topic(&orders(), Some(4)).await.unwrap());
    let again: Vec<_> = (0..8).map(|number| keyed(&format!("key-{number}"), 100)).collect();
    let published = async || other.publisher().publish(&again).await.iter().all(Outcome::is_accepted);
    eventually(SOON, "the new topic takes them", published).await;
    let mut missing: BTreeSet<_> = again.iter().map(|message| message.id).collect();
    while !missing.is_empty() {
        let delivery = tokio::time::timeout(SOON, subscriber.next()).await.expect("all of them come").unwrap().unwrap();
        missing.remove(&delivery.message.as_ref().unwrap().id);
        let _ = delivery.ack().await;
    }
}

/// Whatever makes somebody say so: nobody else would take the shard.
#[tokio::test(flavor = "multi_thread")]
async fn a_shard_whose_consumer_is_said_to_be_gone_and_is_not_is_read_on() {
    let Some(server) = shared().await else { return };
    let observer = async_nats::connect(server.url()).await.unwrap();
    let mut pulls = observer.subscribe("$JS.API.CONSUMER.MSG.NEXT.gone=orders.>").await.unwrap();
    observer.flush().await.unwrap();
    let broker = connect(&format!("{}?prefix=gone.&partitions=1&session_timeout=2s", server.url())).await;
    let mut subscriber = join(&broker).await;
    for number in 1..=3 {
        let pull = tokio::time::timeout(SOON, pulls.next()).await.expect("the shard is read").unwrap();
        publish(&broker, &[keyed("a", number)]).await;
        let delivery = next(&mut subscriber).await;
        assert_eq!(delivery.position.offset, number as u64);
        delivery.ack().await.unwrap();
        publish_raw(&server, &pull.reply.unwrap(), "NATS/1.0 409 Consumer Deleted\r\n\r\n", "").await;
    }
}
