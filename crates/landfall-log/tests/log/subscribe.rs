//! Behaviour specific to the log's subscribers, in addition to the conformance suite.

use std::fs;
use std::time::Duration;

use landfall_core::{Broker, ErrorKind, Message};
use landfall_log::{Log, Options};
use landfall_testkit::eventually;

use crate::support::*;

/// Long enough to conclude that no message arrives.
const MOMENT: Duration = Duration::from_millis(100);

#[tokio::test]
async fn max_in_flight_limits_deliveries() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::open(folder.path(), Options { max_in_flight: 3, ..Options::default() }).unwrap();
    publish(&log, &(0..20).map(|n| message(&format!("key {n}"), n)).collect::<Vec<_>>()).await;
    let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(next(&mut subscriber).await);
    }
    assert!(tokio::time::timeout(MOMENT, subscriber.next()).await.is_err(), "three are in flight");

    // A returned message still counts as in flight and is delivered next.
    let returned = held.remove(1);
    let position = returned.position;
    returned.nack(Duration::from_millis(10)).await.unwrap();
    let again = next(&mut subscriber).await;
    assert_eq!(again.position, position);
    again.ack().await.unwrap();
    let fresh = next(&mut subscriber).await;
    assert!(held.iter().all(|delivery| delivery.position != fresh.position));
    assert!(tokio::time::timeout(MOMENT, subscriber.next()).await.is_err(), "three are in flight again");
}

#[tokio::test]
async fn acknowledgements_are_saved_automatically() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::open(folder.path(), one_partition()).unwrap();
    publish_each(&log, 0..5).await;
    let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
    let mut held = Vec::new();
    for _ in 0..5 {
        held.push(next(&mut subscriber).await);
    }
    let file = folder.path().join("groups/stock/orders.json");
    let saved = |finished: &'static str| {
        let file = file.clone();
        async move {
            let text = move || fs::read_to_string(&file).is_ok_and(|text| text.contains(finished));
            eventually(SOON, finished, async || text()).await;
        }
    };
    held.remove(0).ack().await.unwrap();
    saved(r#""finished":[1]"#).await;
    // The third message is finished before the second; then both are.
    held.remove(1).ack().await.unwrap();
    held.remove(0).ack().await.unwrap();
    saved(r#""finished":[3]"#).await;
}

#[tokio::test]
async fn acknowledgement_after_leaving_the_group_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::open(folder.path(), one_partition()).unwrap();
    publish_each(&log, 0..1).await;
    let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
    let held = next(&mut subscriber).await;
    subscriber.close().await.unwrap();
    assert_eq!(held.ack().await.unwrap_err().kind(), ErrorKind::Conflict);
    let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
    next(&mut subscriber).await.ack().await.unwrap();
}

#[tokio::test]
async fn unacknowledged_delivery_does_not_lock_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::open(folder.path(), one_partition()).unwrap();
    publish_each(&log, 0..1).await;
    let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
    let held = next(&mut subscriber).await;
    drop((subscriber, log));
    let reopened = Log::open(folder.path(), one_partition()).unwrap();
    assert_eq!(held.ack().await.unwrap_err().kind(), ErrorKind::Conflict);
    let mut subscriber = reopened.subscribe(&topic(), &group()).await.unwrap();
    next(&mut subscriber).await.ack().await.unwrap();
}

#[tokio::test]
async fn rebalancing_loses_no_message() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::open(folder.path(), Options::default()).unwrap();
    let sent: Vec<Message> = (0..50).flat_map(|n| ["a", "b", "c", "d", "e", "f"].map(|key| message(key, n))).collect();
    publish(&log, &sent).await;
    let mut missing: Vec<_> = sent.iter().map(|message| message.id).collect();

    let mut first = log.subscribe(&topic(), &group()).await.unwrap();
    let mut consume = async |subscriber: &mut _, count: usize| {
        for _ in 0..count {
            let delivery = next(subscriber).await;
            let id = delivery.message.as_ref().unwrap().id;
            missing.retain(|other| *other != id);
            delivery.ack().await.unwrap();
        }
        missing.len()
    };
    consume(&mut first, 40).await;
    // In flight at the first member while its partition may move; the new owner must receive it again.
    let held = next(&mut first).await;
    let mut second = log.subscribe(&topic(), &group()).await.unwrap();
    consume(&mut second, 20).await;
    consume(&mut first, 20).await;
    drop(held);
    drop(first);
    while consume(&mut second, 1).await > 0 {}
    second.close().await.unwrap();

    let mut third = log.subscribe(&topic(), &group()).await.unwrap();
    assert!(tokio::time::timeout(MOMENT, third.next()).await.is_err(), "everything is finished");
}

#[tokio::test]
async fn delayed_message_does_not_block_others() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::open(folder.path(), one_partition()).unwrap();
    let sent = publish_each(&log, 0..4).await;
    let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
    next(&mut subscriber).await.nack(Duration::MAX).await.unwrap();
    let second = next(&mut subscriber).await;
    // The paused clock advances when all tasks are idle.
    tokio::time::pause();
    let returned_at = tokio::time::Instant::now();
    second.nack(Duration::from_millis(150)).await.unwrap();
    for expected in &sent[2..] {
        let delivery = next(&mut subscriber).await;
        assert_eq!(delivery.message.as_ref().unwrap(), expected);
        delivery.ack().await.unwrap();
    }
    assert_eq!(next(&mut subscriber).await.message.as_ref().unwrap(), &sent[1]);
    assert!(returned_at.elapsed() >= Duration::from_millis(150));
}
