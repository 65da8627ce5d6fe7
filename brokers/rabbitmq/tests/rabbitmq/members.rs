//! Members of a group that take over from each other.

use landfall_core::Key;
use landfall_rabbitmq::SLOTS;

use crate::support::*;

/// A key whose messages are in the first of two queues.
fn key_of_the_first_queue() -> String {
    let mut keys = (0..).map(|number| format!("key-{number}"));
    let is_in_it = |key: &String| Key::new(key.clone()).unwrap().partition(SLOTS).is_multiple_of(2);
    keys.find(is_in_it).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn who_takes_over_from_a_member_that_lost_one_queue_gets_the_others_in_order() {
    let Some(server) = shared().await else { return };
    let prefix = prefix();
    let key = key_of_the_first_queue();
    let broker = connect(&server.url(), &prefix, "in_flight=20").await;
    let mut first = subscribe(&broker).await;
    let batch: Vec<_> = (1..=100).map(|sequence| keyed(&key, sequence)).collect();
    for message in &batch {
        assert!(publish_one(&broker, message).await.is_accepted());
    }
    let mut in_hand = Vec::new();
    for expected in &batch[..10] {
        let delivery = tokio::time::timeout(SOON, first.next()).await.expect("a delivery").unwrap().unwrap();
        assert_eq!(delivery.message.as_ref().unwrap(), expected);
        in_hand.push(delivery);
    }
    // It knows of one queue only, so that nothing happens to itself.
    let url = format!("{}?prefix={prefix}&partitions=1&create=false", server.url());
    let mut second = subscribe(&connect_to(&url).await).await;
    server.manage("DELETE", &format!("/api/queues/%2F/{prefix}orders%3Astock%3A1"), "").await.unwrap();
    let mut arrived = Vec::new();
    for _ in &batch {
        arrived.push(next(&mut second).await.sequence.unwrap());
    }
    assert_eq!(arrived, (1..=100).collect::<Vec<_>>());
}
