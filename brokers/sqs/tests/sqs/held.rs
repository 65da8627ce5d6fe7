//! A message stays with whoever holds it, for as long as it is held.

use std::time::Duration;

use landfall_core::Broker;
use landfall_testkit::traffic::{keyed, orders, stock};

use crate::support::{SOON, connect_with, shared};

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_held_for_longer_than_its_visibility_comes_to_nobody_else() {
    let Some(server) = shared().await else { return };
    let sqs = connect_with(&server.endpoint(), "visibility=9s&wait=1s&timeout=10s").await;
    let (held_one, waiting) = (keyed("a", 1), keyed("a", 2));
    assert!(sqs.publisher().publish(std::slice::from_ref(&held_one)).await[0].is_accepted());
    let mut one = sqs.subscribe(&orders(), &stock()).await.unwrap();
    let held = one.next().await.unwrap().unwrap();
    assert!(sqs.publisher().publish(std::slice::from_ref(&waiting)).await[0].is_accepted());

    let mut two = sqs.subscribe(&orders(), &stock()).await.unwrap();
    let came = tokio::time::timeout(Duration::from_secs(12), two.next()).await;
    assert!(came.is_err(), "neither the held message nor the next of its key may come: {came:?}");
    held.ack().await.unwrap();
    let next = tokio::time::timeout(SOON, two.next()).await.expect("the next of its key comes").unwrap().unwrap();
    assert_eq!(next.message.as_ref().unwrap().id, waiting.id);
    next.ack().await.unwrap();
    two.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_given_back_is_not_overtaken_by_what_came_with_it() {
    let Some(server) = shared().await else { return };
    let sqs = connect_with(&server.endpoint(), "wait=1s").await;
    let batch: Vec<_> = (1..=4).map(|number| keyed("a", number)).collect();
    assert!(sqs.publisher().publish(&batch).await.iter().all(landfall_core::Outcome::is_accepted));
    let mut subscriber = sqs.subscribe(&orders(), &stock()).await.unwrap();
    subscriber.next().await.unwrap().unwrap().nack(Duration::from_secs(1)).await.unwrap();
    let mut numbers = Vec::new();
    while numbers.len() < batch.len() {
        let delivery = tokio::time::timeout(SOON, subscriber.next()).await.expect("they come again").unwrap().unwrap();
        numbers.push(delivery.message.as_ref().unwrap().sequence.unwrap());
        delivery.ack().await.unwrap();
    }
    assert_eq!(numbers, [1, 2, 3, 4]);
}
