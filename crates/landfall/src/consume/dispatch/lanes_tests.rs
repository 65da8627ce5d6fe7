use std::time::Duration;

use async_trait::async_trait;
use landfall_core::adapter::Acknowledge;
use landfall_core::{Message, Position, Result, TopicName};

use super::*;

#[derive(Debug)]
struct NoAcknowledgement;

#[async_trait]
impl Acknowledge for NoAcknowledgement {
    async fn ack(self: Box<Self>) -> Result<()> {
        Ok(())
    }
    async fn nack(self: Box<Self>, _: Duration) -> Result<()> {
        Ok(())
    }
}

fn delivery(key: Option<&str>, partition: u32, offset: u64) -> Delivery {
    let mut message = Message::new(TopicName::new("t").unwrap(), "");
    message.key = key.map(|key| Key::new(key).unwrap());
    Delivery::new(Ok(message), Position { partition, offset }, Box::new(NoAcknowledgement))
}

fn lanes(order: Order, max_in_flight: usize, max_in_flight_per_lane: usize) -> Lanes {
    let concurrency = 1;
    let (max_in_flight, max_in_flight_per_lane) = (Some(max_in_flight), Some(max_in_flight_per_lane));
    Lanes::new(&Options { order, concurrency, max_in_flight, max_in_flight_per_lane, ..Options::default() })
}

fn offsets(batch: &[(Lane, Delivery)]) -> Vec<u64> {
    batch.iter().map(|(_, delivery)| delivery.position.offset).collect()
}

fn finish(lanes: &mut Lanes, batch: Vec<(Lane, Delivery)>) {
    for (lane, _) in batch {
        lanes.settled(lane);
    }
}

#[test]
fn a_key_runs_in_order_and_does_not_block_other_keys() {
    let mut lanes = lanes(Order::ByKey, 256, 32);
    for (key, offset) in [(Some("a"), 1), (Some("a"), 2), (Some("b"), 3), (None, 4), (Some("a"), 5)] {
        lanes.push(delivery(key, 0, offset));
    }
    let [first, second, third] = [1, 1, 1].map(|limit| lanes.take(limit));
    assert_eq!([&first, &second, &third].map(|batch| offsets(batch)), [[1], [3], [4]]);
    assert!(!lanes.is_ready(), "the rest waits for the first message of its key");
    finish(&mut lanes, first);
    let next = lanes.take(1);
    assert_eq!(offsets(&next), [2]);
    finish(&mut lanes, next);
    finish(&mut lanes, second);
    finish(&mut lanes, third);
    let last = lanes.take(10);
    assert_eq!(offsets(&last), [5]);
    finish(&mut lanes, last);
    assert_eq!((lanes.in_flight, lanes.counted, lanes.queues.len()), (0, 0, 0));
}

#[test]
fn batch_takes_one_of_each_lane_before_a_second_of_any() {
    let mut lanes = lanes(Order::ByKey, 256, 32);
    for (key, offset) in [("hot", 1), ("hot", 2), ("hot", 3), ("a", 4), ("hot", 5), ("b", 6), ("a", 7)] {
        lanes.push(delivery(Some(key), 0, offset));
    }
    assert_eq!(offsets(&lanes.take(5)), [1, 4, 6, 2, 7]);
    assert!(!lanes.is_ready());
}

#[test]
fn deliveries_put_back_are_taken_first() {
    let mut lanes = lanes(Order::ByKey, 256, 32);
    for offset in 1..=4 {
        lanes.push(delivery(Some("a"), 0, offset));
    }
    let mut batch = lanes.take(3);
    while batch.len() > 1 {
        let (lane, delivery) = batch.pop().unwrap();
        lanes.put_back(&lane, delivery);
    }
    finish(&mut lanes, batch);
    assert_eq!(offsets(&lanes.take(10)), [2, 3, 4]);
}

#[test]
fn hot_key_uses_only_its_share_of_the_capacity() {
    let mut lanes = lanes(Order::ByKey, 8, 3);
    let mut offset = 0;
    let mut arrive = |lanes: &mut Lanes, key: &str| {
        offset += 1;
        lanes.push(delivery(Some(key), 0, offset));
    };
    for _ in 0..100 {
        arrive(&mut lanes, "hot");
    }
    assert_eq!((lanes.counted, lanes.depth()), (3, (100, 100)));
    for key in ["a", "b", "c", "d"] {
        assert!(lanes.has_capacity());
        arrive(&mut lanes, key);
    }
    arrive(&mut lanes, "e");
    assert!(!lanes.has_capacity(), "total capacity is bounded");
    // When every delivery has been settled, nothing is counted any more.
    while lanes.is_ready() {
        let batch = lanes.take(7);
        finish(&mut lanes, batch);
    }
    assert_eq!((lanes.in_flight, lanes.counted), (0, 0));
    for _ in 0..8 * Options::OVERFLOW_FACTOR {
        assert!(lanes.has_capacity());
        arrive(&mut lanes, "hot");
    }
    assert!(!lanes.has_capacity(), "overflow is bounded too");
}

#[test]
fn order_option_selects_partitions_keys_or_no_lanes() {
    let messages = [(Some("a"), 0, 1), (Some("b"), 0, 2), (None, 1, 3), (Some("a"), 0, 4)];
    let fill = |order| {
        let mut lanes = lanes(order, 256, 32);
        for (key, partition, offset) in messages {
            lanes.push(delivery(key, partition, offset));
        }
        let first: Vec<_> = (0..4).flat_map(|_| offsets(&lanes.take(1))).collect();
        first
    };
    assert_eq!(fill(Order::ByPartition), [1, 3]);
    assert_eq!(fill(Order::ByKey), [1, 2, 3]);
    assert_eq!(fill(Order::Unordered), [1, 2, 3, 4]);
}

#[test]
fn detached_deliveries_use_no_capacity() {
    let mut lanes = lanes(Order::ByKey, 2, 2);
    lanes.push(delivery(Some("a"), 0, 0));
    lanes.push(delivery(None, 0, 1));
    assert!(!lanes.has_capacity());
    for (lane, _) in lanes.take(2) {
        assert_eq!(lanes.detach(lane), Lane::Detached);
    }
    assert!(lanes.has_capacity());
    assert_eq!(lanes.depth(), (0, 2), "they are still in flight");
    lanes.settled(Lane::Detached);
    lanes.settled(Lane::Detached);
    assert_eq!(lanes.depth(), (0, 0));
    lanes.push(delivery(Some("a"), 0, 2));
    assert!(lanes.has_capacity(), "nothing was counted twice");
}
