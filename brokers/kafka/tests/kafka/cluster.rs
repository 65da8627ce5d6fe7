//! Three nodes: one is killed under load, and the doctor's findings while it is down and after it recovers.

use std::collections::BTreeSet;
use std::time::Duration;

use landfall_core::adapter::Demands;
use landfall_core::{Broker, Diagnose, Span, TopicInfo};
use landfall_kafka::Kafka;
use landfall_testkit::servers::{KafkaCluster, KafkaOptions};
use landfall_testkit::{current_test, eventually};
use rdkafka::admin::{AdminOptions, NewTopic, TopicReplication};

use crate::support::{administrator, kafka, traffic};

const SOON: Duration = Duration::from_secs(90);

/// Waits until the doctor reports exactly these findings. It retries: the doctor's client may still treat a killed node
/// as the controller.
async fn expect_findings(doctor: &Kafka, expected: BTreeSet<(String, &'static str)>, what: &str) {
    let mut last = Ok(Vec::new());
    let found = async || {
        last = doctor.diagnose(&Demands { window: Span::days(30) }).await;
        let found = last.iter().flatten().map(|finding| (finding.about.clone(), finding.check));
        last.is_ok() && found.collect::<BTreeSet<_>>() == expected
    };
    let is_found = tokio::time::timeout(SOON, eventually(SOON * 2, what, found)).await.is_ok();
    assert!(is_found, "{what}: expected {expected:?}, last result {last:#?}");
}

/// One test for all of it, because three nodes are a heavy load for a small machine.
#[tokio::test(flavor = "multi_thread")]
async fn doctor_reports_a_node_killed_under_load() {
    // Nodes that share two cores are sometimes late without being dead.
    let settings = [("offsets.retention.minutes", "129600"), ("broker.session.timeout.ms", "5000")];
    let settings = settings.map(|(name, value)| (name, value.to_owned())).into();
    let options = KafkaOptions { settings, ..KafkaOptions::default() };
    let Some(cluster) = KafkaCluster::start(&current_test(), options).await else { return };
    let answers = async || kafka(&cluster.url()).await.diagnose(&Demands { window: Span::days(30) }).await.is_ok();
    eventually(SOON, "the cluster answers", answers).await;

    let url = format!(
        "{}?prefix=shop.&partitions=6&replication=3&timeout=10s&connect_timeout=3s&session_timeout=6s",
        cluster.url()
    );
    let (traffic, doctor) = (traffic(&url).await, kafka(&format!("{url}&fencing=true")).await);
    traffic.wait_for_progress(500).await;
    expect_findings(&doctor, BTreeSet::new(), "a cluster with the adapter's settings has no findings").await;

    // The cluster keeps accepting messages: two of three replicas are enough.
    cluster.nodes()[1].kill_9().await.unwrap();
    traffic.wait_for_progress(1_000).await;
    let missing = BTreeSet::from([("topic shop.orders".to_owned(), "kafka.under-replicated")]);
    expect_findings(&doctor, missing, "the missing replicas are reported").await;
    cluster.nodes()[1].restart().await.unwrap();
    traffic.wait_for_progress(500).await;
    traffic.finish().await;
    expect_findings(&doctor, BTreeSet::new(), "the findings disappear after recovery").await;
    let TopicInfo { partitions, messages, .. } = doctor.topics().await.unwrap().remove(0);
    assert!(partitions == 6 && messages >= 2_000, "{partitions} partitions, {messages} messages");

    expect_cluster_findings(&cluster, &doctor).await;
}

async fn expect_cluster_findings(cluster: &KafkaCluster, doctor: &Kafka) {
    let admin = administrator(cluster.url().trim_start_matches("kafka://"));
    let topic = |name, replicas, minimum| {
        let topic = NewTopic::new(name, 3, TopicReplication::Fixed(replicas)).set("min.insync.replicas", minimum);
        topic.set("retention.ms", "-1").set("max.message.bytes", "2097152")
    };
    let topics = [topic("shop.trusting", 3, "1"), topic("shop.strict", 3, "3"), topic("shop.single", 1, "1")];
    for created in admin.create_topics(&topics, &AdminOptions::new()).await.unwrap() {
        created.unwrap();
    }
    let expect = async |expected: &[(&str, &'static str)], what: &str| {
        let expected: BTreeSet<_> =
            expected.iter().map(|(about, check)| (format!("topic shop.{about}"), *check)).collect();
        expect_findings(doctor, expected, what).await;
    };
    let unsafe_settings =
        [("trusting", "kafka.min-insync-replicas"), ("strict", "kafka.no-spare-copy"), ("single", "kafka.replication")];
    expect(&unsafe_settings, "unsafe numbers of in-sync replicas are reported").await;
    cluster.nodes()[2].kill_9().await.unwrap();
    let away: Vec<_> = unsafe_settings
        .into_iter()
        .chain(["orders", "trusting", "strict"].map(|topic| (topic, "kafka.under-replicated")))
        .chain([("single", "kafka.offline"), ("single", "kafka.under-replicated")])
        .collect();
    // A topic whose only replica was on that node has no leader, but Kafka still counts one in-sync replica.
    let without: Vec<_> = away[..away.len() - 1].to_vec();
    expect(&without, "a partition without a leader is reported").await;
}
