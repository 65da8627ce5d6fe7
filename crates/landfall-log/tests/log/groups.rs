//! Consumer groups: assignment, fencing of lost partitions, and progress.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use landfall_core::adapter::{Delivery, Subscriber};
use landfall_core::{Broker, ErrorKind, Key, Message};
use landfall_log::{GroupDescription, Log, Options, PartitionLag};
use tokio::sync::Mutex;

use crate::support::*;

const SESSION: Duration = Duration::from_secs(60);
const KEYS: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
/// Messages of each key.
const EACH: i64 = 150;

/// The effective acknowledgements, in order.
#[derive(Debug, Default)]
struct Acknowledged {
    by_key: BTreeMap<Key, Vec<i64>>,
    fenced: usize,
}

impl Acknowledged {
    fn count(&self) -> usize {
        self.by_key.values().map(Vec::len).sum()
    }

    /// Acknowledges under this lock, so that the record has the order in which acknowledgements took effect.
    async fn settle(&mut self, delivery: Delivery) {
        let (message, _, acknowledge) = delivery.into_parts();
        let Message { key, sequence, .. } = message.unwrap();
        match acknowledge.ack().await {
            Ok(()) => self.by_key.entry(key.unwrap()).or_default().push(sequence.unwrap()),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
                self.fenced += 1;
            }
        }
    }
}

/// A member that joins, receives some messages, and leaves with or without closing, until everything is finished.
async fn join_and_leave(log: Log, acknowledged: Arc<Mutex<Acknowledged>>, mut chance: u64) {
    let mut below = move |limit: u64| {
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (chance >> 33) % limit
    };
    while acknowledged.lock().await.count() < KEYS.len() * EACH as usize {
        let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
        let (mut in_flight, max_in_flight) = (VecDeque::new(), below(9) as usize);
        for _ in 0..below(25) {
            // A member without a partition receives nothing.
            let Ok(next) = tokio::time::timeout(Duration::from_millis(20), subscriber.next()).await else { break };
            in_flight.push_back(next.unwrap().unwrap());
            if in_flight.len() > max_in_flight {
                acknowledged.lock().await.settle(in_flight.pop_front().unwrap()).await;
            }
        }
        if below(2) == 0 {
            subscriber.close().await.unwrap();
        } else {
            drop(subscriber);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rebalancing_members_finish_each_message_once_in_order() {
    let folder = quick_folder();
    let options = Options { partitions: 5, max_in_flight: 16, ..Options::default() };
    let log = Log::open(folder.path(), options).unwrap();
    let acknowledged = Arc::new(Mutex::new(Acknowledged::default()));
    let members: Vec<_> =
        (1..=6).map(|chance| tokio::spawn(join_and_leave(log.clone(), Arc::clone(&acknowledged), chance))).collect();
    for n in 0..EACH {
        publish(&log, &KEYS.map(|key| message(key, n))).await;
    }
    for member in members {
        tokio::time::timeout(6 * SOON, member).await.expect("all messages are finished in time").unwrap();
    }

    let acknowledged = acknowledged.lock().await;
    println!("{} acknowledgements were fenced", acknowledged.fenced);
    assert_eq!(acknowledged.by_key.len(), KEYS.len());
    for (key, sequences) in &acknowledged.by_key {
        assert!(sequences.iter().copied().eq(0..EACH), "key {key}: {sequences:?}");
    }
    assert_eq!(log.groups(&topic()).unwrap()[0].lag, 0);
    log.close().await.unwrap();
    let log = Log::open(folder.path(), options).unwrap();
    assert_eq!(log.groups(&topic()).unwrap()[0].lag, 0, "progress is saved");
}

#[tokio::test]
async fn rebalance_moves_as_few_partitions_as_possible() {
    let folder = quick_folder();
    let log = Log::open(folder.path(), Options { partitions: 6, ..Options::default() }).unwrap();
    publish(&log, &(0..60).map(|n| message(&format!("key {n}"), n)).collect::<Vec<_>>()).await;
    let mut first = log.subscribe(&topic(), &group()).await.unwrap();
    // One delivery of each partition.
    let mut held: BTreeMap<u32, Delivery> = BTreeMap::new();
    let mut others = Vec::new();
    while held.len() < 6 {
        let delivery = next(&mut first).await;
        let partition = delivery.position.partition;
        others.extend(held.insert(partition, delivery));
    }
    let mut second = log.subscribe(&topic(), &group()).await.unwrap();
    let mut third = log.subscribe(&topic(), &group()).await.unwrap();
    let (mut kept, mut lost) = (Vec::new(), Vec::new());
    for (partition, delivery) in held {
        match delivery.ack().await {
            Ok(()) => kept.push(partition),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Conflict);
                lost.push(partition);
            }
        }
    }
    assert_eq!((kept.len(), lost.len()), (2, 4));
    for subscriber in [&mut second, &mut third] {
        assert!(lost.contains(&next(subscriber).await.position.partition));
    }
}

#[tokio::test]
async fn acknowledged_messages_behind_a_gap_are_not_redelivered() {
    let folder = quick_folder();
    let log = Log::open(folder.path(), one_partition()).unwrap();
    publish_each(&log, 0..6).await;
    let mut first = log.subscribe(&topic(), &group()).await.unwrap();
    let mut held = Vec::new();
    for _ in 0..5 {
        held.push(next(&mut first).await);
    }
    for index in [3, 1] {
        held.remove(index).ack().await.unwrap();
    }
    drop((first, held));
    let mut second = log.subscribe(&topic(), &group()).await.unwrap();
    for expected in [0, 2, 4, 5] {
        let delivery = next(&mut second).await;
        assert_eq!(delivery.position.offset, expected);
        delivery.ack().await.unwrap();
    }
    assert_eq!(log.groups(&topic()).unwrap()[0].lag, 0);
}

/// Two members on one partition: the first has three messages in flight, the second is idle. The clock is paused.
async fn active_and_idle_member(log: &Log) -> (Box<dyn Subscriber>, Vec<Delivery>, Box<dyn Subscriber>) {
    publish_each(log, 0..3).await;
    let mut first = log.subscribe(&topic(), &group()).await.unwrap();
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(next(&mut first).await);
    }
    let second = log.subscribe(&topic(), &group()).await.unwrap();
    tokio::time::pause();
    (first, held, second)
}

/// Waits for `limit` and asserts that no message is delivered.
async fn assert_no_delivery(subscriber: &mut Box<dyn Subscriber>, limit: Duration) {
    assert!(tokio::time::timeout(limit, subscriber.next()).await.is_err(), "unexpected delivery");
}

#[tokio::test]
async fn silent_member_loses_its_partitions_and_rejoins_on_next_call() {
    let folder = quick_folder();
    let log = Log::open(folder.path(), one_partition()).unwrap();
    let (mut first, mut held, mut second) = active_and_idle_member(&log).await;
    held.remove(0).ack().await.unwrap();
    assert_no_delivery(&mut second, SESSION - Duration::from_secs(1)).await;

    // The paused clock advances automatically until the second member takes over.
    let taken_over = tokio::time::timeout(SESSION, second.next()).await.expect("takeover").unwrap().unwrap();
    assert_eq!(taken_over.position.offset, 1, "acknowledgements of the first member count");
    let error = held.remove(0).ack().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    held.remove(0).nack(Duration::ZERO).await.unwrap();
    assert_eq!(log.groups(&topic()).unwrap()[0].partitions[0].finished, 1, "a fenced member changes nothing");
    taken_over.ack().await.unwrap();

    // The first member rejoins with its next call, here without a partition; then the second leaves.
    assert_no_delivery(&mut first, Duration::from_secs(1)).await;
    drop(second);
    let last = tokio::time::timeout(SESSION, first.next()).await.expect("the member rejoins").unwrap().unwrap();
    assert_eq!(last.position.offset, 2);
    last.ack().await.unwrap();
    assert_eq!(log.groups(&topic()).unwrap()[0].lag, 0);
}

#[tokio::test]
async fn only_member_keeps_its_partitions_when_silent() {
    let folder = quick_folder();
    let log = Log::open(folder.path(), one_partition()).unwrap();
    let (_first, held, second) = active_and_idle_member(&log).await;
    drop(second);
    tokio::time::advance(100 * SESSION).await;
    for delivery in held {
        delivery.ack().await.unwrap();
    }
}

#[tokio::test]
async fn waiting_member_keeps_its_session() {
    let folder = quick_folder();
    let log = Log::open(folder.path(), one_partition()).unwrap();
    let (mut first, held, mut second) = active_and_idle_member(&log).await;
    tokio::join!(assert_no_delivery(&mut first, 10 * SESSION), assert_no_delivery(&mut second, 10 * SESSION));
    for delivery in held {
        delivery.ack().await.unwrap();
    }
}

#[tokio::test]
async fn acknowledging_member_keeps_its_session() {
    let folder = quick_folder();
    let log = Log::open(folder.path(), one_partition()).unwrap();
    let (mut first, mut held, mut second) = active_and_idle_member(&log).await;
    assert_no_delivery(&mut second, SESSION * 2 / 3).await;
    held.remove(0).ack().await.unwrap();
    assert_no_delivery(&mut second, SESSION * 2 / 3).await;
    held.remove(0).nack(Duration::ZERO).await.unwrap();
    assert_no_delivery(&mut second, SESSION * 2 / 3).await;
    held.remove(0).ack().await.unwrap();
    first.next().await.unwrap().unwrap().ack().await.unwrap();
    assert_eq!(log.groups(&topic()).unwrap()[0].lag, 0);
}

#[tokio::test]
async fn lag_is_equal_inside_and_outside_of_the_process() {
    let folder = quick_folder();
    let log = Log::open(folder.path(), Options { partitions: 2, ..Options::default() }).unwrap();
    let read_only = Log::open_read_only(folder.path()).unwrap();
    assert!(log.groups(&topic()).unwrap().is_empty());
    assert!(read_only.groups(&topic()).await.unwrap().is_empty());
    let positions = publish(&log, &(0..10).map(|n| message(&format!("key {n}"), n)).collect::<Vec<_>>()).await;
    let ends = [0, 1].map(|number| positions.iter().filter(|position| position.partition == number).count() as u64);

    let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
    let mut finished = [0, 0];
    for _ in 0..4 {
        let delivery = next(&mut subscriber).await;
        finished[delivery.position.partition as usize] += 1;
        delivery.ack().await.unwrap();
    }
    let unfinished = next(&mut subscriber).await;
    let partitions: Vec<_> = (0..2)
        .map(|partition| {
            let (finished, end) = (finished[partition], ends[partition]);
            PartitionLag { partition: partition as u32, finished, end, lag: end - finished }
        })
        .collect();
    let description = GroupDescription { group: group(), members: Some(1), partitions, lag: 6 };
    assert_eq!(log.groups(&topic()).unwrap(), std::slice::from_ref(&description));
    drop(unfinished);
    subscriber.close().await.unwrap();

    let seen = read_only.groups(&topic()).await.unwrap();
    assert_eq!(seen, [GroupDescription { members: None, ..description.clone() }]);
    assert_eq!(read_only.unfinished(&topic(), &group()).await.unwrap(), 6);
    assert_eq!(read_only.unfinished(&topic(), &"unheard-of".parse().unwrap()).await.unwrap(), 10);
    assert_eq!(log.groups(&topic()).unwrap(), [GroupDescription { members: Some(0), ..description }]);
    let json = serde_json::to_value(&seen[0]).unwrap();
    assert_eq!((&json["group"], &json["lag"]), (&"stock".into(), &6.into()));
    assert_eq!(json["partitions"][0]["end"], ends[0]);
}

#[tokio::test]
async fn deleted_group_restarts_and_active_group_cannot_be_deleted() {
    let folder = quick_folder();
    let log = Log::open(folder.path(), one_partition()).unwrap();
    log.delete_group(&topic(), &group()).await.unwrap();
    publish_each(&log, 0..3).await;
    let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
    next(&mut subscriber).await.ack().await.unwrap();
    let error = log.delete_group(&topic(), &group()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(log.groups(&topic()).unwrap()[0].lag, 2);
    subscriber.close().await.unwrap();

    let file = folder.path().join("groups/stock/orders.json");
    assert!(file.exists());
    for _ in 0..2 {
        log.delete_group(&topic(), &group()).await.unwrap();
        assert!(!file.exists());
        assert!(log.groups(&topic()).unwrap().is_empty());
    }
    let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
    let delivery = next(&mut subscriber).await;
    assert_eq!(delivery.position.offset, 0);
    delivery.ack().await.unwrap();
    subscriber.close().await.unwrap();
    log.delete_group(&topic(), &group()).await.unwrap();
    log.close().await.unwrap();
    let log = Log::open(folder.path(), one_partition()).unwrap();
    assert!(log.groups(&topic()).unwrap().is_empty());
}

#[test]
fn zero_session_timeout_is_refused() {
    let folder = quick_folder();
    let options = Options { session_timeout: Duration::ZERO, ..Options::default() };
    assert_eq!(Log::open(folder.path(), options).unwrap_err().kind(), ErrorKind::Invalid);
}
