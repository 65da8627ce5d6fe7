//! The small files of a log are as `docs/reference/log-format.md` shows them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;

use landfall_core::{Broker, GroupName, Message, ProducerName, TopicName};
use landfall_log::{Log, Options, TopicSettings};

/// The JSON block below the heading of this name, as it stands in the file.
fn shown(heading: &str) -> String {
    let reference = include_str!("../../../docs/reference/log-format.md");
    let section = reference.split(&format!("\n## {heading}\n")).nth(1).unwrap();
    let block = section.split("```json\n").nth(1).unwrap().split("```").next().unwrap();
    block.replace(['\n', ' '], "")
}

fn found(folder: &Path, file: &str) -> String {
    std::fs::read_to_string(folder.join(file)).unwrap()
}

#[tokio::test]
async fn the_small_files_are_as_the_reference_shows_them() {
    let folder = tempfile::tempdir().unwrap();
    let (topic, group) = (TopicName::new("orders").unwrap(), GroupName::new("billing").unwrap());
    let log = Log::open(folder.path(), Options { segment_bytes: 1024, ..Options::default() }).unwrap();
    let settings = TopicSettings { retention_bytes: Some(2048), ..TopicSettings::default() };
    log.create_topic(&topic, Some(1), settings).await.unwrap();
    for name in ["meter-7", "meter-8", "meter-7"] {
        log.producer(&ProducerName::new(name).unwrap()).await.unwrap();
    }
    for _ in 0..20 {
        assert!(log.publisher().publish(&[Message::new(topic.clone(), vec![7; 200])]).await[0].is_accepted());
    }
    let mut subscriber = log.subscribe(&topic, &group).await.unwrap();
    for _ in 0..12 {
        subscriber.next().await.unwrap().unwrap().ack().await.unwrap();
    }
    subscriber.close().await.unwrap();
    log.maintain().await.unwrap();
    log.close().await.unwrap();

    assert_eq!(found(folder.path(), "producers.json"), shown("producers.json"));
    assert_eq!(found(folder.path(), "topics/orders/0/start.json"), shown("start.json"));
    assert_eq!(found(folder.path(), "groups/billing/orders.json"), shown("Groups"));
}
