//! Visibility: a message in flight is not delivered to another member.

use std::time::Duration;

use landfall_core::Broker;
use landfall_testkit::traffic::{keyed, orders, stock};

use crate::support::{SOON, connect_with, shared};

#[tokio::test(flavor = "multi_thread")]
async fn visibility_is_extended_while_a_message_is_in_flight() {
    let Some(server) = shared().await else { return };
    let sqs = connect_with(&server.endpoint(), "visibility=9s&wait=1s&timeout=10s").await;
    let (first, second) = (keyed("a", 1), keyed("a", 2));
    assert!(sqs.publisher().publish(std::slice::from_ref(&first)).await[0].is_accepted());
    let mut one = sqs.subscribe(&orders(), &stock()).await.unwrap();
    let in_flight = one.next().await.unwrap().unwrap();
    assert!(sqs.publisher().publish(std::slice::from_ref(&second)).await[0].is_accepted());

    let mut two = sqs.subscribe(&orders(), &stock()).await.unwrap();
    let received = tokio::time::timeout(Duration::from_secs(12), two.next()).await;
    assert!(received.is_err(), "neither the message in flight nor the next of its key may be delivered: {received:?}");
    in_flight.ack().await.unwrap();
    let next = tokio::time::timeout(SOON, two.next())
        .await
        .expect("the next message of the key is delivered")
        .unwrap()
        .unwrap();
    assert_eq!(next.message.as_ref().unwrap().id, second.id);
    next.ack().await.unwrap();
    two.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nacked_message_is_not_overtaken_by_its_successors() {
    let Some(server) = shared().await else { return };
    let sqs = connect_with(&server.endpoint(), "wait=1s").await;
    let batch: Vec<_> = (1..=4).map(|number| keyed("a", number)).collect();
    assert!(sqs.publisher().publish(&batch).await.iter().all(landfall_core::Outcome::is_accepted));
    let mut subscriber = sqs.subscribe(&orders(), &stock()).await.unwrap();
    subscriber.next().await.unwrap().unwrap().nack(Duration::from_secs(1)).await.unwrap();
    let mut numbers = Vec::new();
    while numbers.len() < batch.len() {
        let delivery = tokio::time::timeout(SOON, subscriber.next())
            .await
            .expect("the messages are redelivered")
            .unwrap()
            .unwrap();
        numbers.push(delivery.message.as_ref().unwrap().sequence.unwrap());
        delivery.ack().await.unwrap();
    }
    assert_eq!(numbers, [1, 2, 3, 4]);
}
