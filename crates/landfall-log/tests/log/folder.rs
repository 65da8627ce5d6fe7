//! Opening a log: the lock of its folder, the format and the options.

use std::fs;

use landfall_core::{Broker, ErrorKind, Outcome, Publisher};
use landfall_log::{Log, Options};

use crate::support::*;

#[tokio::test]
async fn second_open_is_refused_and_names_the_holder() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::open(folder.path(), Options::default()).unwrap();
    let error = Log::open(folder.path(), Options::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InUse);
    let text = error.to_string();
    assert!(text.contains(folder.path().to_str().unwrap()), "{text}");
    assert!(text.contains(&std::process::id().to_string()), "{text}");
    publish_each(&log, 0..1).await;
}

#[tokio::test]
async fn closing_or_dropping_a_log_releases_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::open(folder.path().join("not/there/yet"), Options::default()).unwrap();
    publish_each(&log, 0..1).await;
    log.close().await.unwrap();
    let reopened = Log::open(folder.path().join("not/there/yet"), Options::default()).unwrap();
    drop(reopened);
    Log::open(folder.path().join("not/there/yet"), Options::default()).unwrap();
    log.close().await.expect("a second close does nothing");
}

#[tokio::test]
async fn closed_log_refuses_messages_and_ends_subscribers() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::open(folder.path(), Options::default()).unwrap();
    log.health().unwrap();
    let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
    let closing = log.clone();
    let (delivery, closed) = tokio::join!(subscriber.next(), async move { closing.close().await });
    closed.unwrap();
    assert!(delivery.unwrap().is_none());
    assert!(subscriber.next().await.unwrap().is_none());
    assert_eq!(log.health().unwrap_err().kind(), ErrorKind::Unavailable);
    for _ in 0..2 {
        match &log.publish(&[message("k", 1)]).await[..] {
            [Outcome::Refused(refusal)] => {
                assert!(refusal.retriable && refusal.reason.contains("the log is closed"), "{refusal:?}");
            }
            other => panic!("{other:?}"),
        }
    }
    subscriber.close().await.unwrap();
}

#[tokio::test]
async fn newer_format_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    drop(Log::open(folder.path(), Options::default()).unwrap());
    fs::write(folder.path().join("format"), "landfall-log 2\n").unwrap();
    for error in
        [Log::open(folder.path(), Options::default()).unwrap_err(), Log::open_read_only(folder.path()).unwrap_err()]
    {
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("format 2"), "{error}");
    }
    fs::write(folder.path().join("format"), "something else").unwrap();
    assert_eq!(Log::open(folder.path(), Options::default()).unwrap_err().kind(), ErrorKind::Corrupt);
    fs::remove_file(folder.path().join("format")).unwrap();
    assert_eq!(Log::open(folder.path(), Options::default()).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[tokio::test]
async fn invalid_options_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for options in [
        Options { partitions: 0, ..Options::default() },
        Options { partitions: 100_000, ..Options::default() },
        Options { segment_bytes: 100, ..Options::default() },
        Options { segment_bytes: u64::MAX, ..Options::default() },
        Options { max_in_flight: 0, ..Options::default() },
    ] {
        let error = Log::open(folder.path().join("log"), options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{options:?}");
    }
    assert!(!folder.path().join("log").exists(), "nothing is written");
}
