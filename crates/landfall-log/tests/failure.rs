//! What happens when the disk says no. The failpoints are global, so this is a binary of its own with one test at a
//! time.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::fs;

use landfall_core::{Broker, ErrorCode, ErrorKind, Outcome, Publisher};
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

/// After a failure at `failpoint` nothing is accepted or shown, and a reopened log holds what was accepted before.
async fn fails_once_and_stops(failpoint: &str) {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::open(folder.path(), one_partition()).unwrap();
    let before = publish_each(&log, 0..3).await;

    fail::cfg(failpoint, "1*return").unwrap();
    let outcomes = log.publish(&[message("k", 3), message("other", 1)]).await;
    fail::remove(failpoint);
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Unknown(_))), "{outcomes:?}");
    assert_eq!(read_all(&log).await, before, "nothing is shown that was not synced");

    // The disk works again, and that changes nothing: nobody knows what the failed call left behind.
    assert_stopped(&log.publish(&[message("k", 4), message("l", 1)]).await);
    let mut elsewhere = message("k", 4);
    elsewhere.topic = "elsewhere".parse().unwrap();
    assert_stopped(&log.publish(&[elsewhere]).await);
    let error = log.health().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("a failpoint said so"), "{error}");

    let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
    for expected in &before {
        let delivery = next(&mut subscriber).await;
        assert_eq!(delivery.message.as_ref().unwrap(), expected, "readers go on");
        delivery.ack().await.unwrap();
    }
    subscriber.close().await.unwrap();
    log.close().await.unwrap();

    let log = Log::open(folder.path(), one_partition()).unwrap();
    log.health().unwrap();
    let found = read_all(&log).await;
    assert!(found.starts_with(&before));
    assert!(found.len() == 3 || found.len() == 5, "the group that failed is there as a whole or not at all");
    publish(&log, &[message("k", 5)]).await;
}

#[tokio::test]
async fn a_failed_sync_stops_the_log() {
    let _alone = ONE_AT_A_TIME.lock().await;
    fails_once_and_stops("landfall-log::sync").await;
}

#[tokio::test]
async fn a_failed_write_stops_the_log() {
    let _alone = ONE_AT_A_TIME.lock().await;
    fails_once_and_stops("landfall-log::write").await;
}

#[tokio::test]
async fn a_segment_that_cannot_be_created_stops_the_log() {
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
async fn a_topic_that_cannot_be_created_stops_the_log() {
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
