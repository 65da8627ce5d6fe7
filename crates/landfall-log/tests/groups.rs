//! Groups: who gets which partition, what a member may still do with one it lost, and how far a group has come.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use landfall_core::{Broker, Delivery, ErrorKind, Key, Message, Subscriber};
use landfall_log::{GroupDescription, Log, Options, PartitionLag};
use support::*;
use tokio::sync::Mutex;

const SESSION: Duration = Duration::from_secs(60);
const KEYS: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
/// Messages of each key.
const EACH: i64 = 150;

/// What was acknowledged and counts, in that order.
#[derive(Debug, Default)]
struct Account {
    by_key: BTreeMap<Key, Vec<i64>>,
    fenced: usize,
}

impl Account {
    fn count(&self) -> usize {
        self.by_key.values().map(Vec::len).sum()
    }

    /// Acknowledges under the account's lock, so that it holds everything in the order in which it counted.
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

/// One who joins, takes some, and leaves with or without saying so, until everything is finished.
async fn come_and_go(log: Log, account: Arc<Mutex<Account>>, mut chance: u64) {
    let mut below = move |limit: u64| {
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (chance >> 33) % limit
    };
    while account.lock().await.count() < KEYS.len() * EACH as usize {
        let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
        let (mut held, most_held) = (VecDeque::new(), below(9) as usize);
        for _ in 0..below(25) {
            // There may be more members than partitions.
            let Ok(next) = tokio::time::timeout(Duration::from_millis(20), subscriber.next()).await else { break };
            held.push_back(next.unwrap().unwrap());
            if held.len() > most_held {
                account.lock().await.settle(held.pop_front().unwrap()).await;
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
async fn members_come_and_go_and_every_message_counts_once_and_in_order() {
    let folder = quick_folder();
    let options = Options { partitions: 5, max_in_flight: 16, ..Options::default() };
    let log = Log::open(folder.path(), options).unwrap();
    let account = Arc::new(Mutex::new(Account::default()));
    let members: Vec<_> =
        (1..=6).map(|chance| tokio::spawn(come_and_go(log.clone(), Arc::clone(&account), chance))).collect();
    for n in 0..EACH {
        publish(&log, &KEYS.map(|key| message(key, n))).await;
    }
    for member in members {
        tokio::time::timeout(6 * SOON, member).await.expect("everything is finished in time").unwrap();
    }

    let account = account.lock().await;
    println!("{} acknowledgements were fenced", account.fenced);
    assert_eq!(account.by_key.len(), KEYS.len());
    for (key, sequences) in &account.by_key {
        assert!(sequences.iter().copied().eq(0..EACH), "key {key}: {sequences:?}");
    }
    assert_eq!(log.groups(&topic()).unwrap()[0].lag, 0);
    log.close().await.unwrap();
    let log = Log::open(folder.path(), options).unwrap();
    assert_eq!(log.groups(&topic()).unwrap()[0].lag, 0, "it is saved, too");
}

#[tokio::test]
async fn only_as_many_partitions_move_as_must() {
    let folder = quick_folder();
    let log = Log::open(folder.path(), Options { partitions: 6, ..Options::default() }).unwrap();
    publish(&log, &(0..60).map(|n| message(&format!("key {n}"), n)).collect::<Vec<_>>()).await;
    let mut first = log.subscribe(&topic(), &group()).await.unwrap();
    // One of each partition.
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
async fn what_was_acknowledged_behind_a_gap_does_not_come_again_to_the_next_member() {
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

/// Two members on one partition; the first has taken three messages, the clock stands still.
async fn one_who_holds_and_one_who_stands_by(log: &Log) -> (Box<dyn Subscriber>, Vec<Delivery>, Box<dyn Subscriber>) {
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

/// Waits for `limit`, in which nothing must come.
async fn nothing_comes(subscriber: &mut Box<dyn Subscriber>, limit: Duration) {
    assert!(tokio::time::timeout(limit, subscriber.next()).await.is_err(), "nothing comes");
}

#[tokio::test]
async fn a_silent_member_loses_its_partitions_and_is_back_with_its_next_call() {
    let folder = quick_folder();
    let log = Log::open(folder.path(), one_partition()).unwrap();
    let (mut first, mut held, mut second) = one_who_holds_and_one_who_stands_by(&log).await;
    held.remove(0).ack().await.unwrap();
    nothing_comes(&mut second, SESSION - Duration::from_secs(1)).await;

    // The clock moves on by itself to the moment at which the second takes over.
    let taken = tokio::time::timeout(SESSION, second.next()).await.expect("it takes over").unwrap().unwrap();
    assert_eq!(taken.position.offset, 1, "what the first had acknowledged counts");
    let error = held.remove(0).ack().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    held.remove(0).nack(Duration::ZERO).await.unwrap();
    assert_eq!(log.groups(&topic()).unwrap()[0].partitions[0].finished, 1, "what the first does moves nothing");
    taken.ack().await.unwrap();

    // It is a member again as soon as it asks, here as the one who stands by; then the second leaves.
    nothing_comes(&mut first, Duration::from_secs(1)).await;
    drop(second);
    let last = tokio::time::timeout(SESSION, first.next()).await.expect("it is back").unwrap().unwrap();
    assert_eq!(last.position.offset, 2);
    last.ack().await.unwrap();
    assert_eq!(log.groups(&topic()).unwrap()[0].lag, 0);
}

#[tokio::test]
async fn the_only_member_keeps_its_partitions_however_silent_it_is() {
    let folder = quick_folder();
    let log = Log::open(folder.path(), one_partition()).unwrap();
    let (_first, held, second) = one_who_holds_and_one_who_stands_by(&log).await;
    drop(second);
    tokio::time::advance(100 * SESSION).await;
    for delivery in held {
        delivery.ack().await.unwrap();
    }
}

#[tokio::test]
async fn a_member_that_waits_is_alive() {
    let folder = quick_folder();
    let log = Log::open(folder.path(), one_partition()).unwrap();
    let (mut first, held, mut second) = one_who_holds_and_one_who_stands_by(&log).await;
    tokio::join!(nothing_comes(&mut first, 10 * SESSION), nothing_comes(&mut second, 10 * SESSION));
    for delivery in held {
        delivery.ack().await.unwrap();
    }
}

#[tokio::test]
async fn a_member_that_acknowledges_or_gives_back_is_alive() {
    let folder = quick_folder();
    let log = Log::open(folder.path(), one_partition()).unwrap();
    let (mut first, mut held, mut second) = one_who_holds_and_one_who_stands_by(&log).await;
    nothing_comes(&mut second, SESSION * 2 / 3).await;
    held.remove(0).ack().await.unwrap();
    nothing_comes(&mut second, SESSION * 2 / 3).await;
    held.remove(0).nack(Duration::ZERO).await.unwrap();
    nothing_comes(&mut second, SESSION * 2 / 3).await;
    held.remove(0).ack().await.unwrap();
    first.next().await.unwrap().unwrap().ack().await.unwrap();
    assert_eq!(log.groups(&topic()).unwrap()[0].lag, 0);
}

#[tokio::test]
async fn lag_is_what_is_not_finished_inside_and_outside_of_the_process() {
    let folder = quick_folder();
    let log = Log::open(folder.path(), Options { partitions: 2, ..Options::default() }).unwrap();
    let beside = Log::open_read_only(folder.path()).unwrap();
    assert!(log.groups(&topic()).unwrap().is_empty());
    assert!(beside.groups(&topic()).await.unwrap().is_empty());
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

    let seen = beside.groups(&topic()).await.unwrap();
    assert_eq!(seen, [GroupDescription { members: None, ..description.clone() }]);
    assert_eq!(beside.unfinished(&topic(), &group()).await.unwrap(), 6);
    assert_eq!(beside.unfinished(&topic(), &"unheard-of".parse().unwrap()).await.unwrap(), 10);
    assert_eq!(log.groups(&topic()).unwrap(), [GroupDescription { members: Some(0), ..description }]);
    let json = serde_json::to_value(&seen[0]).unwrap();
    assert_eq!((&json["group"], &json["lag"]), (&"stock".into(), &6.into()));
    assert_eq!(json["partitions"][0]["end"], ends[0]);
}

#[tokio::test]
async fn a_deleted_group_starts_at_the_beginning_and_one_with_members_stays() {
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
fn a_session_without_time_is_refused() {
    let folder = quick_folder();
    let options = Options { session_timeout: Duration::ZERO, ..Options::default() };
    assert_eq!(Log::open(folder.path(), options).unwrap_err().kind(), ErrorKind::Invalid);
}
