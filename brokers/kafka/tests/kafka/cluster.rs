//! Three nodes: one killed under load, and what the doctor says while it is away and when everything is well.

use std::collections::BTreeSet;
use std::time::Duration;

use landfall_core::{Broker, Demands, Diagnose, Span, TopicInfo};
use landfall_kafka::Kafka;
use landfall_testkit::servers::{KafkaCluster, KafkaOptions};
use landfall_testkit::{current_test, eventually};
use rdkafka::admin::{AdminOptions, NewTopic, TopicReplication};

use crate::support::{administrator, kafka, traffic};

const SOON: Duration = Duration::from_secs(90);

/// Waits until the doctor finds these and nothing else. It was there before a node went: the one that it took for the
/// controller may be that one.
async fn finds(doctor: &Kafka, expected: BTreeSet<(String, &'static str)>, what: &str) {
    let mut last = Ok(Vec::new());
    let found = async || {
        last = doctor.diagnose(&Demands { window: Span::days(30) }).await;
        let found = last.iter().flatten().map(|finding| (finding.about.clone(), finding.check));
        last.is_ok() && found.collect::<BTreeSet<_>>() == expected
    };
    let is_found = tokio::time::timeout(SOON, eventually(SOON * 2, what, found)).await.is_ok();
    assert!(is_found, "{what}: expected {expected:?}, and last there was {last:#?}");
}

/// In one test, since three nodes are much for a small machine.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_survives_the_death_of_a_node_under_load_and_the_doctor_sees_it() {
    // Nodes that share two processors are late now and then, and not dead.
    let settings = [("offsets.retention.minutes", "129600"), ("broker.session.timeout.ms", "5000")];
    let settings = settings.map(|(name, value)| (name, value.to_owned())).into();
    let options = KafkaOptions { settings, ..KafkaOptions::default() };
    let Some(cluster) = KafkaCluster::start(&current_test(), options).await else { return };
    let all_there = async || kafka(&cluster.url()).await.diagnose(&Demands { window: Span::days(30) }).await.is_ok();
    eventually(SOON, "the cluster answers", all_there).await;

    let url = format!(
        "{}?prefix=shop.&partitions=6&replication=3&timeout=10s&connect_timeout=3s&session_timeout=6s",
        cluster.url()
    );
    let (traffic, doctor) = (traffic(&url).await, kafka(&url).await);
    traffic.flows(500).await;
    finds(&doctor, BTreeSet::new(), "a cluster as the adapter sets it up is healthy").await;

    // Messages go on being accepted while it is away: two of three copies are enough.
    cluster.nodes()[1].kill_9().await.unwrap();
    traffic.flows(1_000).await;
    let missing = BTreeSet::from([("topic shop.orders".to_owned(), "kafka.under-replicated")]);
    finds(&doctor, missing, "the missing copies are found").await;
    cluster.nodes()[1].restart().await.unwrap();
    traffic.flows(500).await;
    traffic.finish().await;
    finds(&doctor, BTreeSet::new(), "it is healthy again").await;
    let TopicInfo { partitions, messages, .. } = doctor.topics().await.unwrap().remove(0);
    assert!(partitions == 6 && messages >= 2_000, "{partitions} partitions, {messages} messages");

    found_in_a_cluster_only(&cluster, &doctor).await;
}

async fn found_in_a_cluster_only(cluster: &KafkaCluster, doctor: &Kafka) {
    let admin = administrator(cluster.url().trim_start_matches("kafka://"));
    let topic = |name, copies, least| {
        let topic = NewTopic::new(name, 3, TopicReplication::Fixed(copies)).set("min.insync.replicas", least);
        topic.set("retention.ms", "-1").set("max.message.bytes", "2097152")
    };
    let topics = [topic("shop.trusting", 3, "1"), topic("shop.strict", 3, "3"), topic("shop.single", 1, "1")];
    for made in admin.create_topics(&topics, &AdminOptions::new()).await.unwrap() {
        made.unwrap();
    }
    let expect = async |expected: &[(&str, &'static str)], what: &str| {
        let expected: BTreeSet<_> =
            expected.iter().map(|(about, check)| (format!("topic shop.{about}"), *check)).collect();
        finds(doctor, expected, what).await;
    };
    let unsafe_settings =
        [("trusting", "kafka.min-insync-replicas"), ("strict", "kafka.no-spare-copy"), ("single", "kafka.replication")];
    expect(&unsafe_settings, "settings that go with the number of copies").await;
    cluster.nodes()[2].kill_9().await.unwrap();
    let away: Vec<_> = unsafe_settings
        .into_iter()
        .chain(["orders", "trusting", "strict"].map(|topic| (topic, "kafka.under-replicated")))
        .chain([("single", "kafka.offline"), ("single", "kafka.under-replicated")])
        .collect();
    // What had its only copy there has no leader, and by Kafka's own count still one copy in step.
    let without: Vec<_> = away[..away.len() - 1].to_vec();
    expect(&without, "a partition without a leader").await;
}
