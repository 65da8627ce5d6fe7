//! Topics are created, grown, configured and deleted: repeatedly, across restarts, and with a crash at every step.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use landfall_core::{Broker, ErrorKind, Outcome, Publisher, StartAt, TopicName};
use landfall_log::{Log, Options, TopicSettings};

use crate::failing_disk::FailingDisk;
use crate::support::*;

fn week() -> TopicSettings {
    TopicSettings { retention_time: Some(Duration::from_secs(7 * 24 * 3600)), ..TopicSettings::default() }
}

fn open(folder: &Path) -> Log {
    Log::open(folder, Options::default()).unwrap()
}

#[tokio::test]
async fn creating_a_topic_is_idempotent_and_differences_conflict() {
    let folder = quick_folder();
    for is_first in [true, false] {
        let log = open(folder.path());
        assert_eq!(log.create_topic(&topic(), Some(3), week()).await.unwrap(), is_first);
        assert!(!log.create_topic(&topic(), Some(3), week()).await.unwrap());
        assert!(!log.create_topic(&topic(), None, week()).await.unwrap(), "any number of partitions matches");
        let error = log.create_topic(&topic(), Some(4), TopicSettings::default()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert_eq!(
            error.to_string(),
            "topic orders already exists, but it has 3 partitions and not 4, \
             its retention is 604800000 ms and not forever"
        );
        let described = log.describe(&topic()).unwrap();
        assert_eq!((described.partitions.len(), described.settings), (3, week()));
        assert_eq!(Log::open_read_only(folder.path()).unwrap().describe(&topic()).await.unwrap(), described);
        log.health().unwrap();
    }
    let log = open(folder.path());
    for (partitions, settings) in
        [(0, week()), (2000, week()), (1, TopicSettings { retention_bytes: Some(0), ..week() })]
    {
        let error = log.create_topic(&TopicName::new("other").unwrap(), Some(partitions), settings).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
}

#[tokio::test]
async fn auto_created_topic_gets_the_settings_of_the_options() {
    let folder = quick_folder();
    let log = Log::open(folder.path(), Options { topic: week(), partitions: 2, ..Options::default() }).unwrap();
    publish_each(&log, 0..1).await;
    let described = log.describe(&topic()).unwrap();
    assert_eq!((described.settings, described.partitions.len(), described.messages), (week(), 2, 1));
}

#[tokio::test]
async fn readers_follow_a_topic_into_new_partitions() {
    let folder = quick_folder();
    let log = Log::open(folder.path(), one_partition()).unwrap();
    publish_each(&log, 0..2).await;
    let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
    let mut reader = log.read(&topic(), StartAt::Beginning).await.unwrap();
    let read_only = Log::open_read_only(folder.path()).unwrap();
    let mut from_outside = read_only.read(&topic(), StartAt::Beginning).await.unwrap();
    for _ in 0..2 {
        next(&mut subscriber).await.ack().await.unwrap();
    }
    assert_eq!((drain(&mut *reader).await.0.len(), drain(&mut *from_outside).await.0.len()), (2, 2));

    let growth = log.grow_topic(&topic(), 8).await.unwrap();
    assert_eq!((growth.before, growth.after, growth.moves_keys()), (1, 8, true));
    assert!(growth.to_string().contains("before older ones of the same key are finished"), "{growth}");
    let again = log.grow_topic(&topic(), 8).await.unwrap();
    assert_eq!((again.before, again.after, again.moves_keys()), (8, 8, false));
    let error = log.grow_topic(&topic(), 7).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("has 8 partitions and cannot have fewer"), "{error}");
    let missing = log.grow_topic(&TopicName::new("nothing").unwrap(), 2).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);

    // Enough keys to reach a new partition.
    let batch: Vec<_> = (0..40).map(|n| message(&format!("key {n}"), n)).collect();
    let positions = publish(&log, &batch).await;
    assert!(positions.iter().any(|position| position.partition > 0));
    for _ in 0..40 {
        next(&mut subscriber).await.ack().await.unwrap();
    }
    assert_eq!((drain(&mut *reader).await.0.len(), drain(&mut *from_outside).await.0.len()), (40, 40));
    subscriber.close().await.unwrap();
    drop(reader);
    log.close().await.unwrap();

    let log = Log::open(folder.path(), one_partition()).unwrap();
    assert_eq!(log.describe(&topic()).unwrap().partitions.len(), 8);
    assert!(!log.grow_topic(&topic(), 8).await.unwrap().moves_keys());
    assert_eq!(read_all(&log).await.len(), 42);
}

#[tokio::test]
async fn topic_settings_are_replaced_and_survive_a_restart() {
    let folder = quick_folder();
    let log = open(folder.path());
    assert_eq!(log.configure_topic(&topic(), week()).await.unwrap_err().kind(), ErrorKind::NotFound);
    log.create_topic(&topic(), Some(1), TopicSettings::default()).await.unwrap();
    assert!(log.configure_topic(&topic(), week()).await.unwrap());
    assert!(!log.configure_topic(&topic(), week()).await.unwrap());
    log.close().await.unwrap();
    let log = open(folder.path());
    assert_eq!(log.describe(&topic()).unwrap().settings, week());
    assert!(!log.configure_topic(&topic(), week()).await.unwrap());
}

#[tokio::test]
async fn deleted_topic_ends_all_readers_and_its_name_is_reusable() {
    let folder = quick_folder();
    let log = Log::open(folder.path(), one_partition()).unwrap();
    publish_each(&log, 0..5).await;
    let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
    let mut reader = log.read(&topic(), StartAt::End).await.unwrap();
    let read_only = Log::open_read_only(folder.path()).unwrap();
    let mut from_outside = read_only.read(&topic(), StartAt::End).await.unwrap();
    for _ in 0..4 {
        next(&mut subscriber).await.ack().await.unwrap();
    }
    let in_flight = next(&mut subscriber).await;
    let waiting = tokio::spawn(async move { (subscriber.next().await.unwrap_err(), subscriber) });

    assert!(log.delete_topic(&topic()).await.unwrap());
    assert!(!log.delete_topic(&topic()).await.unwrap());
    let (error, mut subscriber) = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
    for error in [error, reader.read(1).await.unwrap_err(), from_outside.read(1).await.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert_eq!(error.to_string(), "topic orders was deleted, with all its messages");
    }
    assert_eq!(log.describe(&topic()).unwrap_err().kind(), ErrorKind::NotFound);
    assert!(log.topics().await.unwrap().is_empty());
    let left = names(folder.path());
    assert!(left.iter().all(|name| ["groups", "groups/stock", "topics"].contains(&name.as_str())), "{left:?}");

    // Acknowledgements of the old topic do not apply to the new one.
    publish_each(&log, 0..2).await;
    // It has no effect. Whether it returns an error depends on what the subscriber has noticed.
    let _ = in_flight.ack().await;
    assert_eq!(subscriber.next().await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(from_outside.read(1).await.unwrap_err().kind(), ErrorKind::NotFound, "the new topic is a different one");
    subscriber.close().await.unwrap();
    let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
    for offset in 0..2 {
        let delivery = next(&mut subscriber).await;
        assert_eq!(delivery.position.offset, offset);
        delivery.ack().await.unwrap();
    }
    subscriber.close().await.unwrap();
    log.close().await.unwrap();
    let log = Log::open(folder.path(), one_partition()).unwrap();
    assert_eq!(read_all(&log).await.len(), 2);
}

/// Other members join and leave meanwhile, so that the subscriber re-reads its assignment at any moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscriber_notices_deletion_during_a_rebalance() {
    let folder = quick_folder();
    let log = Log::open(folder.path(), one_partition()).unwrap();
    for _ in 0..400 {
        log.create_topic(&topic(), Some(1), TopicSettings::default()).await.unwrap();
        let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
        let waiting = tokio::spawn(async move { subscriber.next().await.map(drop) });
        let others = log.clone();
        let joining_and_leaving = tokio::spawn(async move {
            for _ in 0..20 {
                drop(others.subscribe(&topic(), &group()).await.unwrap());
            }
        });
        assert!(log.delete_topic(&topic()).await.unwrap());
        let next = tokio::time::timeout(SOON, waiting).await.expect("the subscriber must not wait forever").unwrap();
        assert_eq!(next.unwrap_err().kind(), ErrorKind::NotFound);
        joining_and_leaving.await.unwrap();
    }
}

#[tokio::test]
async fn publishing_continues_while_the_topic_is_deleted_repeatedly() {
    let folder = quick_folder();
    let log = open(folder.path());
    let publisher = log.clone();
    let publishing = tokio::spawn(async move {
        for n in 0..300 {
            let outcome = publisher.publish(&[message("k", n), message("other", n)]).await;
            for outcome in outcome {
                match outcome {
                    Outcome::Accepted(_) => {}
                    Outcome::Refused(refusal) => assert!(refusal.retriable, "{refusal:?}"),
                    Outcome::Unknown(why) => panic!("{why}"),
                }
            }
        }
    });
    let mut deleted = 0;
    while !publishing.is_finished() {
        deleted += u32::from(log.delete_topic(&topic()).await.unwrap());
    }
    publishing.await.unwrap();
    assert!(deleted > 0);
    log.health().unwrap();
    log.delete_topic(&topic()).await.unwrap();
    assert_eq!(publish(&log, &[message("k", 0)]).await[0].offset, 0);
}

#[tokio::test]
async fn leftovers_of_an_unfinished_creation_are_discarded() {
    let folder = quick_folder();
    let log = Log::open(folder.path(), one_partition()).unwrap();
    publish_each(&log, 0..3).await;
    log.close().await.unwrap();
    std::fs::remove_file(folder.path().join("topics/orders/topic.json")).unwrap();

    let log = Log::open(folder.path(), one_partition()).unwrap();
    assert!(log.topics().await.unwrap().is_empty());
    assert_eq!(publish(&log, &[message("k", 9)]).await[0].offset, 0);
    assert_eq!(read_all(&log).await.len(), 1);
}

#[tokio::test]
async fn flipped_bit_in_topic_json_is_reported() {
    let folder = quick_folder();
    let log = open(folder.path());
    log.create_topic(&topic(), Some(1), week()).await.unwrap();
    log.close().await.unwrap();
    let path = folder.path().join("topics/orders/topic.json");
    let good = std::fs::read(&path).unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        std::fs::write(&path, bad).unwrap();
        assert_refused_as_corrupt(folder.path(), &path, &format!("byte {at} is changed"));
    }
    std::fs::write(&path, good).unwrap();
    open(folder.path());
}

/// The files and folders of topics and groups, in order.
fn names(folder: &Path) -> Vec<String> {
    fn walk(root: &Path, folder: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            found.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
            if path.is_dir() {
                walk(root, &path, found);
            }
        }
    }
    let mut found = Vec::new();
    walk(folder, folder, &mut found);
    found.retain(|name| name.starts_with("topics") || name.starts_with("groups"));
    found.sort();
    found
}

#[derive(Debug, Clone, Copy)]
enum Call {
    Create,
    CreateByMessage,
    Grow,
    Configure,
    Delete,
}

impl Call {
    /// Prepares a log before the call. Where a topic exists, it has three messages and the group has finished two.
    async fn prepare(self, folder: &Path) {
        let log = Log::open(folder, one_partition()).unwrap();
        if !matches!(self, Self::Create | Self::CreateByMessage) {
            publish_each(&log, 0..3).await;
            let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
            for _ in 0..2 {
                next(&mut subscriber).await.ack().await.unwrap();
            }
            subscriber.close().await.unwrap();
        }
        log.close().await.unwrap();
    }

    async fn execute(self, log: &Log) -> Result<(), String> {
        let result = match self {
            Self::Create => log.create_topic(&topic(), Some(2), week()).await.map(drop),
            Self::CreateByMessage => match log.publish(&[message("k", 0)]).await.remove(0) {
                Outcome::Accepted(_) => Ok(()),
                other => return Err(format!("{other:?}")),
            },
            Self::Grow => log.grow_topic(&topic(), 3).await.map(drop),
            Self::Configure => log.configure_topic(&topic(), week()).await.map(drop),
            Self::Delete => log.delete_topic(&topic()).await.map(drop),
        };
        result.map_err(|error| error.to_string())
    }

    /// Checks the log after an interrupted call, before it is repeated: all of the old state, or all of the new.
    async fn check_atomic(self, log: &Log) {
        let described = log.describe(&topic()).ok();
        let found = described.as_ref().map(|topic| (topic.partitions.len(), topic.settings));
        let old = (1, TopicSettings::default());
        let expected = match self {
            Self::Create => [None, Some((2, week()))],
            Self::CreateByMessage => [None, Some(old)],
            Self::Grow => [Some(old), Some((3, TopicSettings::default()))],
            Self::Configure => [Some(old), Some((1, week()))],
            Self::Delete => [Some(old), None],
        };
        assert!(expected.contains(&found), "{self:?}: {found:?}");
        if found.is_some() && !matches!(self, Self::Create | Self::CreateByMessage) {
            let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
            assert_eq!(next(&mut subscriber).await.position.offset, 2, "the group's progress is intact too");
        }
    }
}

#[tokio::test]
async fn topic_changes_are_atomic_and_repeatable_after_a_crash() {
    for call in [Call::Create, Call::CreateByMessage, Call::Grow, Call::Configure, Call::Delete] {
        let expected = {
            let folder = quick_folder();
            call.prepare(folder.path()).await;
            let log = Log::open(folder.path(), one_partition()).unwrap();
            call.execute(&log).await.unwrap();
            log.close().await.unwrap();
            names(folder.path())
        };
        let mut steps = 0;
        loop {
            let folder = quick_folder();
            call.prepare(folder.path()).await;
            let disk = Arc::new(FailingDisk::new(io::ErrorKind::Other));
            let log = Log::open_on(Arc::clone(&disk) as _, folder.path(), one_partition()).unwrap();
            disk.fail_after(steps);
            let result = call.execute(&log).await;
            let is_done = !disk.has_failed();
            assert_eq!(result.is_ok(), is_done, "{call:?} with {steps} steps: {result:?}");
            assert_eq!(log.health().is_ok(), is_done, "a failure stops the log");
            drop(log);

            let log = Log::open(folder.path(), one_partition()).unwrap();
            call.check_atomic(&log).await;
            call.execute(&log).await.unwrap();
            log.close().await.unwrap();
            assert_eq!(names(folder.path()), expected, "{call:?} with {steps} steps");
            Log::open(folder.path(), one_partition()).unwrap();
            if is_done {
                break;
            }
            steps += 1;
        }
        assert!(steps >= 4, "{call:?} has only {steps} steps");
    }
}

/// A resumed deletion can itself be interrupted.
#[tokio::test]
async fn interrupted_deletion_finishes_on_the_next_open() {
    let mut steps = 0;
    loop {
        let folder = quick_folder();
        Call::Delete.prepare(folder.path()).await;
        std::fs::rename(folder.path().join("topics/orders"), folder.path().join("topics/~deleted-0")).unwrap();
        let disk = Arc::new(FailingDisk::new(io::ErrorKind::Other));
        disk.fail_after(steps);
        let is_done = Log::open_on(Arc::clone(&disk) as _, folder.path(), one_partition()).is_ok();
        let log = Log::open(folder.path(), one_partition()).unwrap();
        assert_eq!(names(folder.path()), ["groups", "groups/stock", "topics"], "after {steps} steps");
        publish_each(&log, 0..1).await;
        let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
        assert_eq!(next(&mut subscriber).await.position.offset, 0);
        if is_done {
            break;
        }
        steps += 1;
    }
    assert!(steps > 6, "{steps}");
}

#[tokio::test]
async fn topic_creation_on_a_full_disk_can_be_retried() {
    for steps in 0..6 {
        let folder = quick_folder();
        let disk = Arc::new(FailingDisk::new(io::ErrorKind::StorageFull));
        let log = Log::open_on(Arc::clone(&disk) as _, folder.path(), Options::default()).unwrap();
        disk.fail_after(steps);
        assert_eq!(log.create_topic(&topic(), Some(2), week()).await.unwrap_err().kind(), ErrorKind::Unavailable);
        log.health().unwrap();
        disk.fail_after(i64::MAX);
        assert!(log.create_topic(&topic(), Some(2), week()).await.unwrap());
        assert_eq!(
            names(folder.path()),
            ["groups", "topics", "topics/orders", "topics/orders/0", "topics/orders/1", "topics/orders/topic.json"]
        );
    }
}
