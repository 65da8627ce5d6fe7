//! Group members that join, leave, crash, and acknowledge too late.

use std::time::Duration;

use landfall_core::adapter::{Delivery, Subscriber};
use landfall_core::{Broker, Message};
use landfall_kafka::Kafka;
use landfall_testkit::servers::SharedGuard;
use landfall_testkit::traffic::{Plan, Traffic, keyed, orders, stock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{SOON, Shared, fresh_prefix, kafka, shared};

async fn broker(parameters: &str) -> Option<(SharedGuard<Shared>, Kafka)> {
    let server = shared().await?;
    let url = format!("{}?prefix={}&session_timeout=6s&{parameters}", server.url().await, fresh_prefix());
    Some((server, kafka(&url).await))
}

async fn join(broker: &Kafka) -> Box<dyn Subscriber> {
    broker.subscribe(&orders(), &stock()).await.unwrap()
}

async fn next(subscriber: &mut Box<dyn Subscriber>) -> Delivery {
    tokio::time::timeout(SOON, subscriber.next()).await.expect("a delivery arrives").unwrap().unwrap()
}

async fn publish(broker: &Kafka, messages: &[Message]) {
    let outcomes = broker.publisher().publish(messages).await;
    assert!(outcomes.iter().all(landfall_core::Outcome::is_accepted), "{outcomes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rebalances_under_load_lose_nothing_and_keep_order() {
    let Some((_server, broker)) = broker("partitions=6").await else { return };
    let mut traffic = Traffic::new(Plan::default());
    traffic.add_sender(&broker);
    traffic.wait_for_accepted(200).await;
    let one = traffic.add_consumer(&broker).await;
    traffic.wait_for_progress(200).await;
    let two = traffic.add_consumer(&broker).await;
    traffic.wait_for_progress(500).await;
    // One member leaves, one disappears without leaving, and a third takes over.
    one.leave().await;
    traffic.wait_for_progress(200).await;
    traffic.add_consumer(&broker).await;
    two.kill();
    traffic.wait_for_progress(500).await;
    traffic.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn full_member_takes_over_a_partition_without_exceeding_its_limit() {
    const COUNT: usize = 2_000;
    let Some((_server, broker)) = broker("partitions=2&in_flight=10").await else { return };
    let (mut full, mut leaving) = (join(&broker).await, join(&broker).await);
    // Each member has one of the partitions once both have received a delivery.
    let (mut full_received, mut leaving_received) = (0, 0);
    while full_received == 0 || leaving_received == 0 {
        // Without a number: a probe may be delivered again behind the numbered messages.
        let probe = |number| Message { sequence: None, ..keyed(&format!("key-{number}"), 0) };
        let probes: Vec<_> = (0..20).map(probe).collect();
        publish(&broker, &probes).await;
        for _ in 0..probes.len() {
            let delivery = tokio::select! {
                delivery = next(&mut full) => {
                    full_received += 1;
                    delivery
                }
                delivery = next(&mut leaving) => {
                    leaving_received += 1;
                    delivery
                }
            };
            delivery.ack().await.unwrap();
        }
    }
    let messages: Vec<_> = (0..COUNT).map(|number| keyed(&format!("key-{}", number % 20), number as i64)).collect();
    publish(&broker, &messages).await;
    let mut in_flight = Vec::new();
    while in_flight.len() < 10 {
        in_flight.push(next(&mut full).await);
    }
    // Long enough for its partitions to be paused.
    let more = tokio::time::timeout(Duration::from_millis(1_500), full.next()).await;
    assert!(more.is_err(), "ten are the limit: {more:?}");
    leaving.close().await.unwrap();
    // Its partition moves to the other member, which receives a few deliveries of it and no more.
    while let Ok(delivery) = tokio::time::timeout(Duration::from_secs(5), full.next()).await {
        in_flight.push(delivery.unwrap().unwrap());
        assert!(in_flight.len() < 200, "deliveries do not stop at the limit");
    }
    let mut seen = std::collections::BTreeMap::<String, Vec<i64>>::new();
    let mut count = 0;
    while count < COUNT {
        let delivery = match in_flight.is_empty() {
            true => next(&mut full).await,
            false => in_flight.remove(0),
        };
        let message = delivery.message.as_ref().unwrap();
        let numbers = seen.entry(message.key.as_ref().unwrap().to_string()).or_default();
        if let Some(number) = message.sequence.filter(|number| !numbers.contains(number)) {
            numbers.push(number);
            count += 1;
        }
        delivery.ack().await.unwrap();
    }
    assert!(seen.values().all(|numbers| numbers.is_sorted()), "{seen:?}");
    full.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn full_member_resumes_after_acknowledging() {
    let Some((_server, broker)) = broker("partitions=1&in_flight=10").await else { return };
    let messages: Vec<_> = (1..=100).map(|number| keyed("a", number)).collect();
    publish(&broker, &messages).await;
    let mut subscriber = join(&broker).await;
    let mut in_flight = Vec::new();
    for _ in 0..10 {
        in_flight.push(next(&mut subscriber).await);
    }
    // Long enough for its partitions to be paused.
    let more = tokio::time::timeout(Duration::from_millis(1_500), subscriber.next()).await;
    assert!(more.is_err(), "ten are the limit: {more:?}");
    let mut numbers = Vec::new();
    for delivery in in_flight {
        numbers.push(delivery.message.as_ref().unwrap().sequence.unwrap());
        delivery.ack().await.unwrap();
    }
    while numbers.len() < 100 {
        let delivery = next(&mut subscriber).await;
        numbers.push(delivery.message.as_ref().unwrap().sequence.unwrap());
        delivery.ack().await.unwrap();
    }
    assert_eq!(numbers, (1..=100).collect::<Vec<_>>());
    subscriber.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn late_acknowledgement_commits_nothing() {
    let Some((_server, broker)) = broker("partitions=1").await else { return };
    let messages: Vec<_> = (1..=3).map(|number| keyed("a", number)).collect();
    publish(&broker, &messages).await;
    let mut one = join(&broker).await;
    let late = next(&mut one).await;
    one.close().await.unwrap();
    let mut two = join(&broker).await;
    let first = next(&mut two).await;
    assert_eq!(first.position, late.position, "the next member receives the same message");
    late.ack().await.unwrap();
    two.close().await.unwrap();
    drop(first);
    let mut three = join(&broker).await;
    for message in &messages {
        let delivery = next(&mut three).await;
        assert_eq!(delivery.message.as_ref().unwrap().id, message.id, "the message was never finished");
        delivery.ack().await.unwrap();
    }
    three.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nacked_message_bounds_how_far_its_partition_advances() {
    let Some((_server, broker)) = broker("partitions=1&in_flight=10").await else { return };
    let messages: Vec<_> = (0..400).map(|number| keyed(&format!("key-{number}"), number)).collect();
    publish(&broker, &messages).await;
    let mut subscriber = join(&broker).await;
    let first = next(&mut subscriber).await;
    let first_id = first.message.as_ref().unwrap().id;
    first.nack(Duration::from_secs(2)).await.unwrap();
    let mut behind = Vec::new();
    loop {
        let delivery = next(&mut subscriber).await;
        let id = delivery.message.as_ref().unwrap().id;
        delivery.ack().await.unwrap();
        if id == first_id {
            break;
        }
        behind.push(id);
    }
    assert!(
        behind.len() <= 110,
        "at most ten times the in-flight limit, plus what was already fetched: {}",
        behind.len()
    );
    while behind.len() < 399 {
        let delivery = next(&mut subscriber).await;
        behind.push(delivery.message.as_ref().unwrap().id);
        delivery.ack().await.unwrap();
    }
    assert_eq!(behind, messages[1..].iter().map(|message| message.id).collect::<Vec<_>>());
    subscriber.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn non_utf8_header_name_fails_only_its_record() {
    let Some(server) = shared().await else { return };
    let prefix = fresh_prefix();
    let broker = kafka(&format!("{}?prefix={prefix}&partitions=1", server.url().await)).await;
    publish(&broker, &[keyed("a", 1)]).await;
    produce_by_hand(&server.address(), &format!("{prefix}{}", orders()), &[0xff, 0xfe]).await;
    publish(&broker, &[keyed("a", 2)]).await;
    let mut subscriber = join(&broker).await;
    let mut found = Vec::new();
    for _ in 0..3 {
        let (message, _, acknowledge) = next(&mut subscriber).await.into_parts();
        found.push(message.map(|message| message.sequence).map_err(|error| error.to_string()));
        acknowledge.ack().await.unwrap();
    }
    assert_eq!(found, [Ok(Some(1)), Err("a header's name is not valid UTF-8".into()), Ok(Some(2))]);
    subscriber.close().await.unwrap();
}

/// Sends a raw Produce request (version 3, one batch of one record). No client library accepts such a header name.
async fn produce_by_hand(address: &str, topic: &str, header_name: &[u8]) {
    let small = |number: usize| vec![(number * 2) as u8];
    let header = [small(header_name.len()), header_name.to_vec(), small(0)].concat();
    let body = [vec![0, 0, 0, 1], small(0), small(1), header].concat();
    let record = [small(body.len()), body].concat();
    let no_producer = [[0xff; 8].as_slice(), &[0xff; 2], &[0xff; 4]].concat();
    let checked = [vec![0; 2 + 4 + 8 + 8], no_producer, vec![0, 0, 0, 1], record].concat();
    let behind = [[0xff; 4].as_slice(), &[2], &crc32c(&checked).to_be_bytes(), &checked].concat();
    let records = [vec![0; 8], sized(&behind)].concat();
    let name = [(topic.len() as u16).to_be_bytes().as_slice(), topic.as_bytes()].concat();
    let request = [
        vec![0, 0, 0, 3, 0, 0, 0, 7, 0xff, 0xff],
        vec![0xff, 0xff, 0xff, 0xff, 0, 0, 0x75, 0x30, 0, 0, 0, 1],
        name,
        vec![0, 0, 0, 1, 0, 0, 0, 0],
        sized(&records),
    ];
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.write_all(&sized(&request.concat())).await.unwrap();
    let mut length = [0; 4];
    stream.read_exact(&mut length).await.unwrap();
    let mut answer = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut answer).await.unwrap();
    // The error code follows the correlation id, topic count, topic name, partition count and partition.
    let error = 4 + 4 + 2 + topic.len() + 4 + 4;
    assert_eq!(answer[error..error + 2], [0, 0], "{answer:?}");
}

fn sized(bytes: &[u8]) -> Vec<u8> {
    [(bytes.len() as u32).to_be_bytes().as_slice(), bytes].concat()
}

fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}
