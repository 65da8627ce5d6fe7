//! Every later build opens, reads and continues a log written by the first build of format 1.
//!
//! `write_fixture` below created `tests/fixtures/format-1` once; it is never regenerated. If this test fails, the build
//! can no longer read existing logs.

use std::fs;
use std::path::{Path, PathBuf};

use landfall_core::{
    Broker, GroupName, Headers, Key, Kind, Message, Mode, Outcome, Position, ProducerName, Publisher, StartAt,
    TopicName,
};
use landfall_log::{Log, Options, TopicSettings};
use serde_json::{Value, json};

use crate::support::{drain, next};

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/format-1")
}

fn options() -> Options {
    Options { partitions: 2, segment_bytes: 2048, preallocate_bytes: 512, ..Options::default() }
}

fn topic(name: &str) -> TopicName {
    TopicName::new(name).unwrap()
}

fn producer_name() -> ProducerName {
    ProducerName::new("till-7").unwrap()
}

/// A message as JSON, as the fixture's `content.json` lists it.
fn described(position: Position, message: &Message) -> Value {
    json!({
        "partition": position.partition,
        "offset": position.offset,
        "id": message.id.to_string(),
        "key": message.key.as_ref().map(Key::as_str),
        "sequence": message.sequence,
        "kind": message.kind.as_str(),
        "mode": message.mode.as_str(),
        "headers": message.headers.iter().collect::<std::collections::BTreeMap<_, _>>(),
        "payload": String::from_utf8_lossy(&message.payload),
        "time": message.time.as_millis(),
    })
}

/// The stored content of a log as JSON.
async fn content(log: &Log) -> Value {
    let mut topics = serde_json::Map::new();
    for description in log.describe_all().unwrap() {
        let mut reader = log.read(&description.topic, StartAt::Beginning).await.unwrap();
        let (stored, outcome) = drain(&mut *reader).await;
        outcome.unwrap();
        let mut messages: Vec<_> = stored
            .iter()
            .map(|stored| (stored.position, described(stored.position, stored.message.as_ref().unwrap())))
            .collect();
        messages.sort_by_key(|(position, _)| *position);
        let groups: Vec<_> =
            log.groups(&description.topic).unwrap().into_iter().map(|group| (group.group, group.partitions)).collect();
        let content = json!({
            "settings": description.settings,
            "starts": description.partitions.iter().map(|partition| partition.start).collect::<Vec<_>>(),
            "ends": description.partitions.iter().map(|partition| partition.end).collect::<Vec<_>>(),
            "messages": messages.into_iter().map(|(_, message)| message).collect::<Vec<_>>(),
            "groups": groups,
        });
        topics.insert(description.topic.to_string(), content);
    }
    Value::Object(topics)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => drop(fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}

#[tokio::test]
async fn log_of_format_1_is_read_and_continued() {
    let folder = tempfile::tempdir().unwrap();
    copy(&fixture().join("log"), folder.path());
    let expected: Value = serde_json::from_slice(&fs::read(fixture().join("content.json")).unwrap()).unwrap();
    let log = Log::open(folder.path(), options()).unwrap();
    assert_eq!(content(&log).await, expected["topics"]);

    // Stored messages are known: by id, even if compaction removed the message, and by producer sequence.
    for known in expected["known"].as_array().unwrap() {
        let position = |value: &Value| serde_json::from_value::<u64>(value.clone()).unwrap();
        let id = known["id"].as_str().unwrap().parse().unwrap();
        let outcomes = log.publish(&[Message::new(topic("prices"), "again").with_id(id)]).await;
        let first = Position { partition: position(&known["partition"]) as u32, offset: position(&known["offset"]) };
        assert_eq!(outcomes, [Outcome::Accepted(first)], "{known}");
    }
    let producer = log.producer(&producer_name()).await.unwrap();
    assert_eq!(
        (producer.id(), u64::from(producer.epoch())),
        (expected["producer"]["id"].as_u64().unwrap(), expected["producer"]["epoch"].as_u64().unwrap() + 1)
    );
    assert_eq!(producer.next_sequence(&topic("orders"), 0).await.unwrap(), 20);
    let again = [Message::new(topic("orders"), "again")];
    let first = Position { partition: 0, offset: expected["producer"]["third"].as_u64().unwrap() };
    assert_eq!(producer.publish(&topic("orders"), 0, 3, &again).await, [Outcome::Accepted(first)]);
    assert_eq!(content(&log).await, expected["topics"], "duplicates were not stored");

    // New messages are appended after the old ones.
    let end = expected["topics"]["orders"]["ends"][0].as_u64().unwrap();
    let outcomes = producer.publish(&topic("orders"), 0, 20, &[Message::new(topic("orders"), "new")]).await;
    assert_eq!(outcomes, [Outcome::Accepted(Position { partition: 0, offset: end })]);
    let mut subscriber = log.subscribe(&topic("orders"), &GroupName::new("mail").unwrap()).await.unwrap();
    next(&mut subscriber).await.ack().await.unwrap();
    subscriber.close().await.unwrap();
    log.close().await.unwrap();
    let reports = Log::open_read_only(folder.path()).unwrap().verify(None, |_| ()).await.unwrap();
    assert!(reports.iter().all(|report| report.problems.is_empty()), "{reports:?}");
}

/// Writes a log with every feature of the format.
#[tokio::test]
#[ignore = "ran once to create the fixture"]
async fn write_fixture() {
    let (folder, log_folder) = (fixture(), fixture().join("log"));
    assert!(!log_folder.exists(), "the fixture must not be regenerated");
    fs::create_dir_all(&log_folder).unwrap();
    let log = Log::open(&log_folder, options()).unwrap();
    let keep = TopicSettings { retention_bytes: Some(4096), ..TopicSettings::default() };
    log.create_topic(&topic("orders"), Some(2), keep).await.unwrap();
    log.create_topic(&topic("prices"), Some(1), TopicSettings { compact: true, ..TopicSettings::default() })
        .await
        .unwrap();

    let mut headers = Headers::default();
    headers.insert("tenant", "北京").unwrap();
    headers.insert("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").unwrap();
    for (n, mode) in (0..60).zip(Mode::ALL.into_iter().cycle()) {
        let key = Key::new(format!("customer-{}", n % 7)).unwrap();
        let mut message = Message::new(topic("orders"), format!("order {n}")).with_mode(mode).with_sequence(n);
        message = message.with_kind(Kind::new("OrderPlaced").unwrap()).with_headers(headers.clone());
        message.key = (n % 5 != 0).then_some(key);
        assert!(log.publish(&[message]).await[0].is_accepted());
    }
    let stock = GroupName::new("stock").unwrap();
    let mut subscriber = log.subscribe(&topic("orders"), &stock).await.unwrap();
    for _ in 0..60 {
        next(&mut subscriber).await.ack().await.unwrap();
    }
    subscriber.close().await.unwrap();
    assert!(log.maintain().await.unwrap().removed_messages > 0);
    let producer = log.producer(&producer_name()).await.unwrap();
    let mut third = 0;
    for n in 0..20_u64 {
        let message = Message::new(topic("orders"), format!("receipt {n}"));
        let outcomes = producer.publish(&topic("orders"), 0, n, &[message]).await;
        let [Outcome::Accepted(position)] = outcomes[..] else { panic!("{outcomes:?}") };
        third = if n == 3 { position.offset } else { third };
    }
    let mut known = Vec::new();
    for n in 0..80 {
        let message = Message::new(topic("prices"), format!("{n} cents, and zeros {}", "\0".repeat(20)))
            .with_key(Key::new(format!("article-{}", n % 3)).unwrap());
        let outcomes = log.publish(std::slice::from_ref(&message)).await;
        let Outcome::Accepted(Position { partition, offset }) = outcomes[0] else { panic!("{outcomes:?}") };
        known.push(json!({ "id": message.id.to_string(), "partition": partition, "offset": offset }));
    }
    assert!(log.maintain().await.unwrap().compacted_messages > 0);
    log.close().await.unwrap();

    // A damaged batch that a repair removed.
    let damaged = log_folder.join("topics/orders/1");
    let mut paths: Vec<_> = fs::read_dir(&damaged).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "segment"));
    paths.sort();
    let mut bytes = fs::read(&paths[0]).unwrap();
    bytes[200] ^= 1;
    fs::write(&paths[0], bytes).unwrap();
    assert!(!Log::repair(&log_folder, None).unwrap().is_empty());

    let log = Log::open(&log_folder, options()).unwrap();
    let (id, epoch) = (producer.id(), producer.epoch());
    let producer = json!({ "id": id, "epoch": epoch, "third": third });
    let expected = json!({ "topics": content(&log).await, "known": known, "producer": producer });
    fs::write(folder.join("content.json"), serde_json::to_string_pretty(&expected).unwrap()).unwrap();
    log.close().await.unwrap();
    fs::remove_file(log_folder.join("lock")).unwrap();
}
