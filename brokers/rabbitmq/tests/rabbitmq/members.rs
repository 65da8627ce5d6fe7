//! Takeover between the members of a group.

use landfall_core::Key;
use landfall_rabbitmq::SLOTS;

use crate::support::*;

/// A key whose messages go to the first of two queues.
fn key_in_first_queue() -> String {
    let mut keys = (0..).map(|number| format!("key-{number}"));
    let is_first = |key: &String| Key::new(key.clone()).unwrap().partition(SLOTS).is_multiple_of(2);
    keys.find(is_first).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn takeover_after_a_deleted_queue_keeps_order() {
    let Some(server) = shared().await else { return };
    let prefix = prefix();
    let key = key_in_first_queue();
    let broker = connect(&server.url(), &prefix, "in_flight=20").await;
    let mut first = subscribe(&broker).await;
    let batch: Vec<_> = (1..=100).map(|sequence| keyed(&key, sequence)).collect();
    for message in &batch {
        assert!(publish_one(&broker, message).await.is_accepted());
    }
    let mut in_flight = Vec::new();
    for expected in &batch[..10] {
        let delivery = tokio::time::timeout(SOON, first.next()).await.expect("a delivery").unwrap().unwrap();
        assert_eq!(delivery.message.as_ref().unwrap(), expected);
        in_flight.push(delivery);
    }
    // The second member consumes one queue only, so deleting the other does not affect it.
    let url = format!("{}?prefix={prefix}&partitions=1&create=false", server.url());
    let mut second = subscribe(&connect_to(&url).await).await;
    server.manage("DELETE", &format!("/api/queues/%2F/{prefix}orders%3Astock%3A1"), "").await.unwrap();
    let mut arrived = Vec::new();
    for _ in &batch {
        arrived.push(next(&mut second).await.sequence.unwrap());
    }
    assert_eq!(arrived, (1..=100).collect::<Vec<_>>());
}
