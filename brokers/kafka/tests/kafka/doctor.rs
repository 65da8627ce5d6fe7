//! Every finding that one node can produce, provoked on a real node. `cluster.rs` has those that need several.

use std::collections::BTreeSet;

use landfall_core::adapter::Demands;
use landfall_core::{Broker, Diagnose, Finding, Span};
use landfall_testkit::current_test;
use landfall_testkit::servers::{KafkaOptions, KafkaServer};
use landfall_testkit::traffic::{keyed, orders, stock};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminOptions, NewTopic, TopicReplication};
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};

use crate::support::{administrator, kafka};

const WINDOW: Demands = Demands { window: Span::Time(std::time::Duration::from_secs(30 * 24 * 3600)) };

/// The checks with a finding about `about`.
fn checks<'a>(found: &'a [Finding], about: &str) -> BTreeSet<&'a str> {
    found.iter().filter(|finding| finding.about == about).map(|finding| finding.check).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_finds_every_unsafe_setting() {
    // Kafka's own default.
    let settings = vec![("auto.create.topics.enable", "true".to_owned())];
    let options = KafkaOptions { settings, ..KafkaOptions::default() };
    let Some(server) = KafkaServer::start(&current_test(), options).await else { return };
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", server.address());

    let careless = [
        ("unclean.leader.election.enable", "true"),
        ("cleanup.policy", "compact,delete"),
        ("retention.ms", "86400000"),
        ("retention.bytes", "1000000"),
        ("max.message.bytes", "100000"),
        ("message.timestamp.type", "CreateTime"),
    ];
    let topic = NewTopic::new("shop.careless", 1, TopicReplication::Fixed(1));
    let topic = careless.iter().fold(topic, |topic, (name, value)| topic.set(name, value));
    administrator(&server.address()).create_topics([&topic], &AdminOptions::new()).await.unwrap().remove(0).unwrap();
    let producer: ThreadedProducer<DefaultProducerContext> = config.create().unwrap();
    let ahead = landfall_core::Timestamp::now().as_millis() + 30 * 60_000;
    producer.send(BaseRecord::to("shop.careless").key("k").payload("x").timestamp(ahead)).map_err(|(e, _)| e).unwrap();
    tokio::task::spawn_blocking(move || producer.flush(std::time::Duration::from_secs(20))).await.unwrap().unwrap();

    let base = format!("{}?prefix=shop.", server.url().await);
    let broker = kafka(&format!("{base}&acks=1&replication=1&partitions=1")).await;
    // The first group creates the topic that stores offsets.
    let mut subscriber = broker.subscribe(&orders(), &stock()).await.unwrap();
    let outcome = broker.publisher().publish(&[keyed("a", 1)]).await;
    assert!(outcome[0].is_accepted(), "{outcome:?}");
    subscriber.next().await.unwrap().unwrap().ack().await.unwrap();
    subscriber.close().await.unwrap();

    let found = broker.diagnose(&WINDOW).await.unwrap();
    let url = ["kafka.acks", "kafka.idempotence", "kafka.replication-option"];
    assert_eq!(checks(&found, "the broker URL"), BTreeSet::from(url), "{found:#?}");
    assert_eq!(
        checks(&found, "node 1"),
        BTreeSet::from(["kafka.auto-create", "kafka.offsets-retention"]),
        "{found:#?}"
    );
    assert_eq!(checks(&found, "topic __consumer_offsets"), BTreeSet::from(["kafka.offsets-replication"]));
    // A topic that the adapter created is safe, as far as one node can be.
    assert_eq!(checks(&found, "topic shop.orders"), BTreeSet::from(["kafka.replication"]), "{found:#?}");
    let careless = [
        "kafka.clock",
        "kafka.compaction",
        "kafka.message-bytes",
        "kafka.replication",
        "kafka.retention",
        "kafka.retention-bytes",
        "kafka.unclean-election",
    ];
    assert_eq!(checks(&found, "topic shop.careless"), BTreeSet::from(careless), "{found:#?}");
    assert!(found.is_sorted_by_key(|finding| finding.rank), "the worst findings come first");
    assert!(found.iter().all(|finding| !finding.mend.is_empty() && !finding.what.is_empty()));
    let retention = found.iter().find(|finding| finding.check == "kafka.retention").unwrap();
    assert_eq!(retention.what, "messages are removed after 1d, read or not, and may be needed for 30d");
    assert_eq!(retention.mend, "retention.ms=2592000000");

    let careful = kafka(&base).await.diagnose(&Demands { window: Span::days(1) }).await.unwrap();
    assert_eq!(checks(&careful, "the broker URL"), BTreeSet::from(["kafka.fencing"]), "{careful:#?}");
    let fenced = kafka(&format!("{base}&fencing=true")).await.diagnose(&WINDOW).await.unwrap();
    assert!(checks(&fenced, "the broker URL").is_empty(), "{fenced:#?}");
    assert_eq!(
        checks(&careful, "node 1"),
        BTreeSet::from(["kafka.auto-create"]),
        "offsets are kept for a week, longer than a day"
    );
    // Topics with another prefix are not checked.
    let elsewhere = kafka(&format!("{}?prefix=bank.", server.url().await)).await.diagnose(&WINDOW).await.unwrap();
    assert!(checks(&elsewhere, "topic shop.careless").is_empty(), "{elsewhere:#?}");
}
