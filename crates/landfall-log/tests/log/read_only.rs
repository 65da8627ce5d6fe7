//! Reading a log while another process has it open.

use std::fs;

use landfall_core::{Broker, ErrorKind, Message, StartAt};
use landfall_log::{Log, Options};

use crate::support::*;

#[tokio::test]
async fn read_only_reader_follows_a_live_writer() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { segment_bytes: 2048, ..Options::default() };
    let log = Log::open(folder.path(), options).unwrap();
    let read_only = Log::open_read_only(folder.path()).unwrap();
    assert_eq!(read_only.read(&topic(), StartAt::Beginning).await.err().unwrap().kind(), ErrorKind::NotFound);
    publish(&log, &[message("first", 0)]).await;

    let mut reader = read_only.read(&topic(), StartAt::Beginning).await.unwrap();
    let writer = tokio::spawn({
        let log = log.clone();
        async move {
            for n in 1..=200 {
                let batch: Vec<_> = ["a", "b", "c", "d", "e"].map(|key| message(key, n)).into();
                publish(&log, &batch).await;
            }
        }
    });
    let mut seen = Vec::new();
    while seen.len() < 1001 {
        let (stored, outcome) = drain(&mut *reader).await;
        outcome.unwrap();
        seen.extend(stored);
        tokio::task::yield_now().await;
    }
    writer.await.unwrap();
    assert!(segments(folder.path(), 0).len() > 3, "the reader had to follow several segments");
    assert!(reader.read(10).await.unwrap().is_empty());

    for key in ["a", "b", "c", "d", "e"] {
        let has_key = |message: &&Message| message.key.as_ref().is_some_and(|other| other.as_str() == key);
        let messages: Vec<_> = seen.iter().map(|stored| stored.message.as_ref().unwrap()).filter(has_key).collect();
        assert!(messages.iter().map(|message| message.sequence).eq((1..=200).map(Some)), "key {key}");
    }
    assert_eq!(read_only.topics().await.unwrap(), log.topics().await.unwrap());
}

#[tokio::test]
async fn read_only_reader_stops_at_an_unfinished_tail() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::open(folder.path(), one_partition()).unwrap();
    let messages = publish_each(&log, 0..3).await;
    log.close().await.unwrap();
    let segment = segments(folder.path(), 0).pop().unwrap();
    let bytes = fs::read(&segment).unwrap();
    let bounds = batch_bounds(&bytes);

    let read_only = Log::open_read_only(folder.path()).unwrap();
    let mut reader = read_only.read(&topic(), StartAt::Beginning).await.unwrap();
    fs::write(&segment, &bytes[..bounds[1]]).unwrap();
    let (stored, outcome) = drain(&mut *reader).await;
    outcome.unwrap();
    assert_eq!(crate::support::messages(stored), messages[..1]);
    for length in bounds[1]..bounds[2] {
        let mut zeros = bytes[..length].to_vec();
        zeros.resize(bounds[3], 0);
        fs::write(&segment, &zeros).unwrap();
        assert!(reader.read(10).await.unwrap().is_empty(), "{length} bytes, then zeros");
    }
    fs::write(&segment, &bytes).unwrap();
    assert_eq!(crate::support::messages(reader.read(10).await.unwrap()), messages[1..]);
}

#[tokio::test]
async fn read_only_reader_reports_damage_and_not_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::open(folder.path(), one_partition()).unwrap();
    publish_each(&log, 0..4).await;
    log.close().await.unwrap();
    let segment = segments(folder.path(), 0).pop().unwrap();
    let bytes = fs::read(&segment).unwrap();
    let bounds = batch_bounds(&bytes);
    let read_only = Log::open_read_only(folder.path()).unwrap();
    for at in (bounds[1]..bounds[2]).step_by(9) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 4;
        fs::write(&segment, &flipped).unwrap();
        let mut reader = read_only.read(&topic(), StartAt::Beginning).await.unwrap();
        let (stored, outcome) = drain(&mut *reader).await;
        assert_eq!(stored.len(), 1);
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Corrupt, "byte {at}");
        assert_eq!(read_only.topics().await.unwrap_err().kind(), ErrorKind::Corrupt, "byte {at}");
    }
}

#[tokio::test]
async fn read_only_reader_starts_at_the_requested_position() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::open(folder.path(), Options { segment_bytes: 1024, ..one_partition() }).unwrap();
    let messages = publish_each(&log, 0..10).await;
    let read_only = Log::open_read_only(folder.path()).unwrap();
    let mut end = read_only.read(&topic(), StartAt::End).await.unwrap();
    let mut middle = read_only.read(&topic(), StartAt::Offset(6)).await.unwrap();
    let mut beyond = read_only.read(&topic(), StartAt::Offset(11)).await.unwrap();
    assert!(end.read(10).await.unwrap().is_empty());
    assert!(beyond.read(10).await.unwrap().is_empty());
    assert_eq!(crate::support::messages(middle.read(2).await.unwrap()), messages[6..8]);
    assert_eq!(crate::support::messages(middle.read(10).await.unwrap()), messages[8..]);
    let later = publish_each(&log, 10..13).await;
    assert_eq!(crate::support::messages(end.read(10).await.unwrap()), later);
    assert_eq!(crate::support::messages(beyond.read(10).await.unwrap()), later[1..]);
}

#[tokio::test]
async fn opening_a_folder_without_a_log_read_only_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path().to_owned(), folder.path().join("missing")] {
        assert_eq!(Log::open_read_only(&path).unwrap_err().kind(), ErrorKind::NotFound);
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
