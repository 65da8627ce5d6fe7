//! Messages that were refused or have an unknown outcome are not treated as stored.

use std::io;
use std::sync::Arc;

use landfall_core::{ErrorCode, Key, Message, Outcome, Publisher};
use landfall_log::{Log, Options};

use super::scene::*;
use crate::failing_disk::FailingDisk;
use crate::support::*;

#[tokio::test]
async fn refused_oversized_message_is_not_remembered() {
    let folder = quick_folder();
    let mut log = Log::open(folder.path(), small_segments()).unwrap();
    let large = Message::new(topic(), vec![b'x'; 4096]).with_key(Key::new("k").unwrap());
    let outcomes = log.publish(&[message("other", 1), large.clone()]).await;
    assert!(matches!(&outcomes[1], Outcome::Refused(refusal) if refusal.code == ErrorCode::TOO_LARGE));
    log.close().await.unwrap();
    log = Log::open(folder.path(), Options { segment_bytes: 64 * 1024, ..small_segments() }).unwrap();
    let position = publish(&log, std::slice::from_ref(&large)).await[0];
    let small = Message { payload: "now it is small".into(), ..message("k", 3) };
    assert_eq!(publish(&log, &[large.clone(), small]).await[0], position);
}

#[tokio::test]
async fn message_refused_on_a_full_disk_is_stored_once_on_retry() {
    for changes in 0..40 {
        let folder = quick_folder();
        let disk = Arc::new(FailingDisk::new(io::ErrorKind::StorageFull));
        let log = Log::open_on(disk.clone(), folder.path(), small_segments()).unwrap();
        let mut sent = batch_of(30);
        let mut positions = publish_one_by_one(&log, &sent).await;
        let more = batch_of(60);
        disk.fail_after(changes);
        let outcomes = log.publish(&more).await;
        assert!(disk.has_failed(), "change {changes} is not part of the batch");
        disk.fail_after(i64::MAX);
        for outcome in &outcomes {
            match outcome {
                Outcome::Accepted(_) => {}
                Outcome::Refused(refusal) => {
                    assert!(refusal.retriable, "{refusal:?}");
                    assert_eq!(refusal.code, ErrorCode::STORAGE_FULL, "change {changes}");
                }
                // A write or a sync of the batch itself failed, and the log stopped.
                Outcome::Unknown(_) => assert!(log.health().is_err(), "change {changes}"),
            }
        }
        let log = if log.health().is_ok() {
            log
        } else {
            log.close().await.unwrap();
            drop(log);
            Log::open(folder.path(), small_segments()).unwrap()
        };
        let again = publish(&log, &more).await;
        for (outcome, position) in outcomes.iter().zip(&again) {
            if let Outcome::Accepted(first) = outcome {
                assert_eq!(first, position, "change {changes}");
            }
        }
        assert_eq!(publish(&log, &sent).await, positions, "change {changes}");
        sent.extend(more);
        positions.extend(again);
        assert_stored_once(&log, &sent, &positions).await;
        log.close().await.unwrap();
        drop(log);
        let log = Log::open(folder.path(), small_segments()).unwrap();
        assert_eq!(publish_one_by_one(&log, &sent).await, positions, "change {changes}, after a restart");
    }
}

#[tokio::test]
async fn retry_after_an_unknown_outcome_stores_the_message_once() {
    for changes in 0..8 {
        let folder = quick_folder();
        let disk = Arc::new(FailingDisk::new(io::ErrorKind::Other));
        let log = Log::open_on(disk.clone(), folder.path(), small_segments()).unwrap();
        let mut sent = batch_of(10);
        let mut positions = publish(&log, &sent).await;
        // Enough for several segments: within the preallocated space few operations could fail.
        let more = batch_of(60);
        disk.fail_after(changes);
        let outcomes = log.publish(&more).await;
        assert!(disk.has_failed(), "change {changes} is not part of the batch");
        disk.fail_after(i64::MAX);
        assert!(outcomes.iter().any(|outcome| matches!(outcome, Outcome::Unknown(_))) || log.health().is_ok());
        log.close().await.unwrap();
        drop(log);
        let log = Log::open(folder.path(), small_segments()).unwrap();
        let first = publish(&log, &more).await;
        assert_eq!(publish(&log, &more).await, first);
        assert_eq!(publish(&log, &sent).await, positions);
        sent.extend(more);
        positions.extend(first);
        assert_stored_once(&log, &sent, &positions).await;
    }
}
