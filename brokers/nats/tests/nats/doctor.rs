//! Every finding, provoked on a real server, and a safe cluster without findings.

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::time::Duration;

use landfall_core::adapter::Demands;
use landfall_core::{Broker, Diagnose, Finding, Span, TopicAdministration};
use landfall_nats::Nats;
use landfall_testkit::servers::{NatsOptions, NatsServer};
use landfall_testkit::traffic::{orders, stock};
use landfall_testkit::{current_test, eventually, not_possible_here};
use serde_json::{Value, json};

use crate::support::{SOON, connect, own, shared};

const DEMANDS: Demands = Demands { window: Span::Time(Duration::from_secs(30 * 24 * 3600)) };

async fn checks(broker: &Nats) -> BTreeSet<&'static str> {
    let findings: Vec<Finding> = broker.diagnose(&DEMANDS).await.unwrap();
    assert!(findings.iter().all(|finding| !finding.what.is_empty() && !finding.mend.is_empty()));
    findings.into_iter().map(|finding| finding.check).collect()
}

/// Sends a request to the management API.
async fn administer(url: &str, subject: &str, request: Value) {
    let client = async_nats::connect(url).await.unwrap();
    let answer = client.request(format!("$JS.API.{subject}"), request.to_string().into()).await.unwrap();
    let answer: Value = serde_json::from_slice(&answer.payload).unwrap();
    assert!(answer["error"].is_null(), "{answer}");
}

/// Creates the topic's stream with unsafe settings.
async fn create_stream(url: &str, prefix: &str, settings: Value) {
    let mut config = json!({
        "name": format!("{prefix}orders"), "subjects": [format!("{prefix}orders.0")], "num_replicas": 1,
        "retention": "limits", "storage": "file", "discard": "new", "duplicate_window": 120_000_000_000_u64,
        "allow_atomic": true,
    });
    config.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    administer(url, &format!("STREAM.CREATE.{prefix}orders"), config).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn safe_cluster_has_no_findings_until_a_server_is_down() {
    let options = NatsOptions { sync_always: true, ..NatsOptions::default() };
    let Some(servers) = NatsServer::start_cluster(&current_test(), options).await else { return };
    let hosts = servers.each_ref().map(NatsServer::address).join(",");
    let monitors = servers.each_ref().map(NatsServer::monitor).join(",");
    let broker = connect(&format!("nats://{hosts}?monitor={monitors}&partitions=2&timeout=2s")).await;
    eventually(SOON, "the cluster creates a topic", async || broker.create_topic(&orders(), None).await.is_ok()).await;
    let _member = broker.subscribe(&orders(), &stock()).await.unwrap();
    eventually(SOON, "the doctor has no findings", async || checks(&broker).await.is_empty()).await;

    servers[2].kill_9().await.unwrap();
    let expected = BTreeSet::from(["nats.replica-away", "nats.sync-not-visible"]);
    eventually(SOON, "the missing server is reported", async || checks(&broker).await == expected).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_finds_every_unsafe_setting() {
    let Some(server) = shared().await else { return };
    let url = server.url();
    // A single server with default settings has these two findings. Each case adds its own.
    let always = BTreeSet::from(["nats.replicas", "nats.sync-interval"]);
    for (number, (settings, check)) in [
        (json!({}), None),
        (json!({"storage": "memory"}), Some("nats.memory-storage")),
        (json!({"discard": "old", "max_bytes": 1_000_000}), Some("nats.discard-old")),
        (json!({"discard": "new", "max_msgs_per_subject": 1_000}), Some("nats.discard-old")),
        (json!({"discard": "new", "discard_new_per_subject": true, "max_msgs_per_subject": 1_000}), None),
        (json!({"max_age": 3_600_000_000_000_u64}), Some("nats.max-age")),
        (json!({"retention": "workqueue"}), Some("nats.retention")),
        (json!({"retention": "interest"}), Some("nats.retention")),
        (json!({"duplicate_window": 1_000_000_000}), Some("nats.duplicate-window")),
        (json!({"no_ack": true, "allow_atomic": false}), Some("nats.no-ack")),
        (json!({"allow_atomic": false}), Some("nats.atomic-batches")),
    ]
    .into_iter()
    .enumerate()
    {
        let prefix = format!("case-{number}-");
        let broker = connect(&format!("{url}?prefix={prefix}&monitor={}", server.monitor())).await;
        create_stream(&url, &prefix, settings.clone()).await;
        let mut found = checks(&broker).await;
        if settings["no_ack"] == true {
            // A stream without acknowledgements cannot have atomic batches.
            found.remove("nats.atomic-batches");
        }
        let added: Vec<_> = found.difference(&always).copied().collect();
        assert_eq!(added, check.into_iter().collect::<Vec<_>>(), "{settings}");
        assert!(found.is_superset(&always), "{found:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_finds_unsafe_consumer_settings() {
    let Some(server) = own().await else { return };
    let broker = connect(&format!("{}?partitions=1&ack_wait=2s", server.url())).await;
    let member = broker.subscribe(&orders(), &stock()).await.unwrap();
    eventually(SOON, "the short ack_wait is reported", async || checks(&broker).await.contains("nats.ack-wait")).await;
    assert!(!checks(&broker).await.contains("nats.max-deliver"));
    let config = json!({
        "durable_name": "stock=0=1", "filter_subject": "orders.0", "deliver_policy": "by_start_sequence",
        "opt_start_seq": 1, "ack_policy": "all", "ack_wait": 2_000_000_000, "max_deliver": 5,
        "max_ack_pending": 100_000, "metadata": {"landfall-owner": "test"},
    });
    let request = json!({"stream_name": "orders", "config": config, "action": "update"});
    administer(&server.url(), "CONSUMER.CREATE.orders.stock=0=1.orders.0", request).await;
    assert!(checks(&broker).await.contains("nats.max-deliver"));
    drop(member);
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_settings_are_a_finding() {
    let more = r#"
        accounts { SHOP { jetstream: enabled, users: [
            { user: shop, password: secret, permissions: { publish: { deny: ["$JS.API.STREAM.LIST"] } } },
            { user: clerk, password: secret, permissions: { publish: { deny: ["$JS.API.CONSUMER.LIST.>"] } } },
        ] } }"#;
    let options = NatsOptions { more: more.into(), ..NatsOptions::default() };
    let Some(server) = NatsServer::start(&current_test(), options).await else { return };
    let broker = connect(&format!("nats://shop:secret@{}", server.address())).await;
    broker.create_topic(&orders(), None).await.unwrap();
    let expected = BTreeSet::from(["nats.not-visible", "nats.sync-not-visible"]);
    assert_eq!(checks(&broker).await, expected);
    let broker = connect(&format!("nats://clerk:secret@{}?monitor={}", server.address(), server.monitor())).await;
    assert!(checks(&broker).await.contains("nats.not-visible"));
}

#[tokio::test(flavor = "multi_thread")]
async fn unencrypted_remote_connection_is_a_finding() {
    let options = NatsOptions { everywhere: true, ..NatsOptions::default() };
    let Some(server) = NatsServer::start(&current_test(), options).await else { return };
    // The external address of this machine. A UDP connect sends nothing.
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    let address = socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr());
    let Some(address) = address.ok().map(|address| address.ip()).filter(|address| !address.is_loopback()) else {
        return not_possible_here(&current_test(), "this machine has only loopback addresses");
    };
    let port = server.address().rsplit_once(':').unwrap().1.to_owned();
    assert!(checks(&connect(&format!("nats://{address}:{port}")).await).await.contains("nats.no-tls"));
    assert!(!checks(&connect(&server.url()).await).await.contains("nats.no-tls"));
}
