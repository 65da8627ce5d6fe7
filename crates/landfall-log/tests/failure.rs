//! Behaviour on disk errors. Failpoints are global to a process, so this is a separate test binary, and its tests run
//! one at a time.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "log/support/mod.rs"]
mod support;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use landfall_core::{Broker, ErrorCode, ErrorKind, Message, Outcome, Publisher};
use landfall_log::{Log, Options};
use support::*;
use tokio::sync::Mutex;

static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

fn assert_stopped(outcomes: &[Outcome]) {
    for outcome in outcomes {
        match outcome {
            Outcome::Refused(refusal) => {
                assert_eq!((&refusal.code, refusal.retriable), (&ErrorCode::UNAVAILABLE, true));
                assert!(refusal.reason.contains("until it is reopened"), "{}", refusal.reason);
            }
            other => panic!("not refused: {other:?}"),
        }
    }
}

/// After a failure at `failpoint` the log accepts and shows nothing more; a reopened log has all accepted messages.
async fn fails_once_and_stops(failpoint: &str) {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::open(folder.path(), one_partition()).unwrap();
    let before = publish_each(&log, 0..3).await;

    fail::cfg(failpoint, "1*return").unwrap();
    let outcomes = log.publish(&[message("k", 3), message("other", 1)]).await;
    fail::remove(failpoint);
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Unknown(_))), "{outcomes:?}");
    assert_eq!(read_all(&log).await, before, "unsynced messages are not shown");

    // The disk works again, but the log stays stopped: the effect of the failed call is unknown.
    assert_stopped(&log.publish(&[message("k", 4), message("l", 1)]).await);
    let mut elsewhere = message("k", 4);
    elsewhere.topic = "elsewhere".parse().unwrap();
    assert_stopped(&log.publish(&[elsewhere]).await);
    let error = log.health().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("injected by a failpoint"), "{error}");

    let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
    for expected in &before {
        let delivery = next(&mut subscriber).await;
        assert_eq!(delivery.message.as_ref().unwrap(), expected, "readers continue");
        delivery.ack().await.unwrap();
    }
    subscriber.close().await.unwrap();
    log.close().await.unwrap();

    let log = Log::open(folder.path(), one_partition()).unwrap();
    log.health().unwrap();
    let found = read_all(&log).await;
    assert!(found.starts_with(&before));
    assert!(found.len() == 3 || found.len() == 5, "the failed batch is stored completely or not at all");
    publish(&log, &[message("k", 5)]).await;
}

/// The growth happens between the subscriber's check of its partitions and its wait for more messages.
#[tokio::test(flavor = "multi_thread")]
async fn subscriber_notices_growth_during_its_partition_check() {
    const TOPIC_CHECKED: &str = "landfall-log::topic-looked-at";
    let _alone = ONE_AT_A_TIME.lock().await;
    let folder = quick_folder();
    let log = Log::open(folder.path(), one_partition()).unwrap();
    publish(&log, &[message("first", 0)]).await;
    let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
    next(&mut subscriber).await.ack().await.unwrap();
    // Find a key whose messages go to a new partition.
    let elsewhere = "elsewhere".parse().unwrap();
    log.create_topic(&elsewhere, Some(8), Default::default()).await.unwrap();
    let probes: Vec<_> =
        (0..40).map(|n| Message { topic: elsewhere.clone(), ..message(&format!("key {n}"), n) }).collect();
    let positions = publish(&log, &probes).await;
    let index = positions.iter().position(|position| position.partition > 0).unwrap();
    let late = Message { topic: topic(), ..probes[index].clone() };

    let checks = Arc::new(AtomicU32::new(0));
    let grows = {
        let (log, late, runtime) = (log.clone(), late.clone(), tokio::runtime::Handle::current());
        let checks = checks.clone();
        move || {
            // Grow at the second check: the first one of a call also sees other changes.
            if checks.fetch_add(1, Ordering::SeqCst) != 1 {
                return;
            }
            let growing = async {
                log.grow_topic(&topic(), 8).await.unwrap();
                publish(&log, std::slice::from_ref(&late)).await;
            };
            tokio::task::block_in_place(|| runtime.block_on(growing));
        }
    };
    fail::cfg_callback(TOPIC_CHECKED, grows).unwrap();
    let delivered = tokio::spawn(async move { next(&mut subscriber).await.message.unwrap() });
    // Every created topic makes the subscriber check again.
    let mut created = 0;
    landfall_testkit::eventually(SOON, "the subscriber checks its partitions twice", async || {
        let has_checked = checks.load(Ordering::SeqCst) > 1;
        if !has_checked {
            created += 1;
            let other = format!("other-{created}").parse().unwrap();
            log.create_topic(&other, Some(1), Default::default()).await.unwrap();
        }
        has_checked
    })
    .await;
    assert_eq!(delivered.await.unwrap(), late);
    fail::remove(TOPIC_CHECKED);
}

#[tokio::test]
async fn failed_sync_stops_the_log() {
    let _alone = ONE_AT_A_TIME.lock().await;
    fails_once_and_stops("landfall-log::sync").await;
}

#[tokio::test]
async fn failed_write_stops_the_log() {
    let _alone = ONE_AT_A_TIME.lock().await;
    fails_once_and_stops("landfall-log::write").await;
}

#[tokio::test]
async fn failed_segment_creation_stops_the_log() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let folder = tempfile::tempdir().unwrap();
    let log = Log::open(folder.path(), Options { segment_bytes: 1024, ..one_partition() }).unwrap();
    publish_each(&log, 0..1).await;
    fs::remove_dir_all(folder.path().join("topics")).unwrap();
    let large: Vec<_> = (0..40).map(|n| message("k", n)).collect();
    let outcomes = log.publish(&large).await;
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Unknown(_))), "{outcomes:?}");
    assert_stopped(&log.publish(&[message("k", 11)]).await);
}

#[tokio::test]
async fn failed_topic_creation_stops_the_log() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let folder = tempfile::tempdir().unwrap();
    let log = Log::open(folder.path(), one_partition()).unwrap();
    fs::remove_dir_all(folder.path().join("topics")).unwrap();
    let outcomes = log.publish(&[message("k", 1), message("k", 2)]).await;
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Refused(_))), "{outcomes:?}");
    fs::create_dir(folder.path().join("topics")).unwrap();
    assert_stopped(&log.publish(&[message("k", 3)]).await);
    assert!(log.topics().await.unwrap().is_empty());
}
