//! The small files of a log match the examples in `docs/reference/log-format.md`.

use std::path::Path;

use landfall_core::{Broker, GroupName, Message, Outcome, ProducerName, TopicName};
use landfall_log::{Log, Options, TopicSettings};

/// The first JSON block below this heading of the reference, without whitespace, as it is in the file.
fn documented(heading: &str) -> String {
    let reference = include_str!("../../../../docs/reference/log-format.md");
    let section = reference.split(&format!("\n## {heading}\n")).nth(1).unwrap();
    let block = section.split("```json\n").nth(1).unwrap().split("```").next().unwrap();
    block.replace(['\n', ' '], "")
}

fn stored(folder: &Path, file: &str) -> String {
    std::fs::read_to_string(folder.join(file)).unwrap()
}

#[tokio::test]
async fn small_files_match_the_format_reference() {
    let folder = tempfile::tempdir().unwrap();
    let (topic, group) = (TopicName::new("orders").unwrap(), GroupName::new("billing").unwrap());
    let log = Log::open(folder.path(), Options { segment_bytes: 1024, ..Options::default() }).unwrap();
    let settings = TopicSettings { retention_bytes: Some(2048), ..TopicSettings::default() };
    log.create_topic(&topic, Some(1), settings).await.unwrap();
    for name in ["meter-7", "meter-8"] {
        log.producer(&ProducerName::new(name).unwrap()).await.unwrap();
    }
    let message = || Message::new(topic.clone(), vec![7; 200]);
    let producer = log.producer(&ProducerName::new("meter-7").unwrap()).await.unwrap();
    assert!(producer.publish(&topic, 0, 0, &[message(), message()]).await.iter().all(Outcome::is_accepted));
    for _ in 0..18 {
        assert!(log.publisher().publish(&[message()]).await[0].is_accepted());
    }
    let mut subscriber = log.subscribe(&topic, &group).await.unwrap();
    for _ in 0..12 {
        subscriber.next().await.unwrap().unwrap().ack().await.unwrap();
    }
    subscriber.close().await.unwrap();
    log.maintain().await.unwrap();
    log.close().await.unwrap();

    assert_eq!(stored(folder.path(), "producers.json"), documented("producers.json"));
    assert_eq!(stored(folder.path(), "topics/orders/0/start.json"), documented("start.json"));
    assert_eq!(stored(folder.path(), "groups/billing/orders.json"), documented("Groups"));
}
