//! What is particular to the log's subscribers, beyond the suite that every broker runs.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::fs;
use std::time::Duration;

use landfall_core::{Broker, ErrorKind, Message};
use landfall_log::{Log, Options};
use landfall_testkit::eventually;
use support::*;

/// Long enough to see that nothing comes.
const MOMENT: Duration = Duration::from_millis(100);

#[tokio::test]
async fn no_more_is_in_flight_than_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::open(folder.path(), Options { max_in_flight: 3, ..Options::default() }).unwrap();
    publish(&log, &(0..20).map(|n| message(&format!("key {n}"), n)).collect::<Vec<_>>()).await;
    let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(next(&mut subscriber).await);
    }
    assert!(tokio::time::timeout(MOMENT, subscriber.next()).await.is_err(), "three are in flight");

    // One that is given back still counts: it is the one that comes.
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
async fn what_was_finished_is_saved_soon_without_anybody_asking() {
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
    // The third is finished but the second is not; then both are.
    held.remove(1).ack().await.unwrap();
    held.remove(0).ack().await.unwrap();
    saved(r#""finished":[3]"#).await;
}

#[tokio::test]
async fn an_acknowledgement_after_leaving_is_refused_and_the_message_comes_again() {
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
async fn a_forgotten_delivery_does_not_keep_the_folder() {
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
async fn partitions_move_when_members_come_and_go_and_nothing_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::open(folder.path(), Options::default()).unwrap();
    let sent: Vec<Message> = (0..50).flat_map(|n| ["a", "b", "c", "d", "e", "f"].map(|key| message(key, n))).collect();
    publish(&log, &sent).await;
    let mut missing: Vec<_> = sent.iter().map(|message| message.id).collect();

    let mut first = log.subscribe(&topic(), &group()).await.unwrap();
    let mut take = async |subscriber: &mut _, count: usize| {
        for _ in 0..count {
            let delivery = next(subscriber).await;
            let id = delivery.message.as_ref().unwrap().id;
            missing.retain(|other| *other != id);
            delivery.ack().await.unwrap();
        }
        missing.len()
    };
    take(&mut first, 40).await;
    // Held by the first while its partition may move; it must come again to whoever has the partition then.
    let held = next(&mut first).await;
    let mut second = log.subscribe(&topic(), &group()).await.unwrap();
    take(&mut second, 20).await;
    take(&mut first, 20).await;
    drop(held);
    drop(first);
    while take(&mut second, 1).await > 0 {}
    second.close().await.unwrap();

    let mut third = log.subscribe(&topic(), &group()).await.unwrap();
    assert!(tokio::time::timeout(MOMENT, third.next()).await.is_err(), "everything is finished");
}

#[tokio::test]
async fn a_delayed_message_waits_for_its_time_while_others_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::open(folder.path(), one_partition()).unwrap();
    let sent = publish_each(&log, 0..4).await;
    let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
    next(&mut subscriber).await.nack(Duration::MAX).await.unwrap();
    let second = next(&mut subscriber).await;
    // The clock goes on when there is nothing else to do.
    tokio::time::pause();
    let given_back = tokio::time::Instant::now();
    second.nack(Duration::from_millis(150)).await.unwrap();
    for expected in &sent[2..] {
        let delivery = next(&mut subscriber).await;
        assert_eq!(delivery.message.as_ref().unwrap(), expected);
        delivery.ack().await.unwrap();
    }
    assert_eq!(next(&mut subscriber).await.message.as_ref().unwrap(), &sent[1]);
    assert!(given_back.elapsed() >= Duration::from_millis(150));
}
