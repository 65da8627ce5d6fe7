//! Every finding, provoked on a real server, and a safe setup without findings.

use std::time::Duration;

use landfall_core::adapter::Demands;
use landfall_core::{Diagnose, Finding, Rank, Span};
use landfall_rabbitmq::RabbitMq;
use landfall_testkit::eventually;
use landfall_testkit::servers::RabbitMqServer;

use crate::support::*;

const DEMANDS: Demands = Demands { window: Span::Time(Duration::from_secs(7 * 24 * 3600)) };

/// A topic with a group and no findings, on a single server.
async fn safe_setup(server: &RabbitMqServer, prefix: &str) -> RabbitMq {
    let broker = connect(&server.url(), prefix, &format!("replicas=1&{}", management(server))).await;
    create_group(&broker).await;
    broker
}

async fn diagnose(broker: &RabbitMq) -> Vec<Finding> {
    broker.diagnose(&DEMANDS).await.unwrap()
}

/// Waits for a finding of `check` about `about`. Policies need a moment to take effect.
async fn expect_finding(broker: &RabbitMq, check: &str, rank: Rank, about: &str) {
    let found = async || {
        let findings = diagnose(broker).await;
        let is_it =
            |finding: &&Finding| (finding.check, finding.rank) == (check, rank) && finding.about.ends_with(about);
        let found = findings.iter().find(is_it);
        if let Some(found) = found {
            assert!(!found.what.is_empty() && !found.mend.is_empty(), "{found:?}");
        }
        found.is_some()
    };
    eventually(Duration::from_secs(60), check, found).await;
}

async fn policy(server: &RabbitMqServer, prefix: &str, apply_to: &str, definition: &str) {
    let policy = format!(r#"{{"pattern":"^{prefix}","definition":{definition},"apply-to":"{apply_to}"}}"#);
    server.manage("PUT", &format!("/api/policies/%2F/{prefix}policy"), &policy).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn safe_setup_has_no_findings() {
    let Some(server) = shared().await else { return };
    let broker = safe_setup(&server, &prefix()).await;
    // The management interface reports the replicas of a new queue with a delay.
    eventually(Duration::from_secs(60), "the doctor has no findings", async || diagnose(&broker).await.is_empty())
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_few_replicas_are_a_finding() {
    let Some(server) = shared().await else { return };
    let prefix = prefix();
    let broker = safe_setup(&server, &prefix).await;
    let demanding = connect(&server.url(), &prefix, &management(&server)).await;
    expect_finding(&demanding, "rabbitmq.replicas", Rank::Loss, "orders:stock:0").await;
    drop(broker);
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_that_drop_messages_are_findings() {
    let Some(server) = shared().await else { return };
    let prefix = prefix();
    let broker = safe_setup(&server, &prefix).await;
    let limits = r#"{"delivery-limit":5,"max-length":1000,"message-ttl":60000,"expires":3600000}"#;
    policy(&server, &prefix, "queues", limits).await;
    for check in ["delivery-limit", "length-limit", "message-ttl", "queue-expires"] {
        expect_finding(&broker, &format!("rabbitmq.{check}"), Rank::Loss, "orders:stock:1").await;
    }
    // A long enough TTL is safe; rejecting messages can break the order.
    policy(&server, &prefix, "queues", r#"{"max-length":1000,"overflow":"reject-publish","message-ttl":604800000}"#)
        .await;
    expect_finding(&broker, "rabbitmq.length-limit", Rank::Order, "orders:stock:1").await;
    let gone = async || diagnose(&broker).await.iter().all(|finding| finding.check == "rabbitmq.length-limit");
    eventually(Duration::from_secs(60), "the other findings disappear", gone).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn alternate_exchange_is_a_finding() {
    let Some(server) = shared().await else { return };
    let prefix = prefix();
    let broker = safe_setup(&server, &prefix).await;
    policy(&server, &format!("{prefix}orders$"), "exchanges", r#"{"alternate-exchange":"amq.fanout"}"#).await;
    expect_finding(&broker, "rabbitmq.alternate-exchange", Rank::Loss, "orders").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unsafe_queues_and_exchanges_are_findings() {
    let Some(server) = shared().await else { return };
    let prefix = prefix();
    let exchange = async |name: &str, settings: &str| {
        server.manage("PUT", &format!("/api/exchanges/%2F/{prefix}{name}"), settings).await.unwrap();
    };
    exchange("payments", r#"{"type":"topic","durable":false}"#).await;
    exchange("payments%3Astock", r#"{"type":"direct","durable":true}"#).await;
    let queue = r#"{"durable":false,"arguments":{}}"#;
    server.manage("PUT", &format!("/api/queues/%2F/{prefix}payments%3Astock%3A0"), queue).await.unwrap();
    let broker = connect(&server.url(), &prefix, &management(&server)).await;
    expect_finding(&broker, "rabbitmq.exchange-type", Rank::Loss, "payments").await;
    expect_finding(&broker, "rabbitmq.not-durable", Rank::Loss, "payments").await;
    expect_finding(&broker, "rabbitmq.no-group", Rank::Latency, "payments").await;
    expect_finding(&broker, "rabbitmq.group-unbound", Rank::Loss, "payments:stock").await;
    expect_finding(&broker, "rabbitmq.slot-unbound", Rank::Order, "payments:stock").await;
    expect_finding(&broker, "rabbitmq.classic-queue", Rank::Loss, "payments:stock:0").await;
    expect_finding(&broker, "rabbitmq.not-durable", Rank::Loss, "payments:stock:0").await;
    expect_finding(&broker, "rabbitmq.single-active-consumer", Rank::Order, "payments:stock:0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slot_with_two_queues_is_a_finding() {
    let Some(server) = shared().await else { return };
    let prefix = prefix();
    let broker = safe_setup(&server, &prefix).await;
    let path = format!("/api/bindings/%2F/e/{prefix}orders%3Astock/q/{prefix}orders%3Astock%3A1");
    server.manage("POST", &path, r#"{"routing_key":"0"}"#).await.unwrap();
    expect_finding(&broker, "rabbitmq.slot-twice", Rank::Order, "orders:stock").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_settings_are_a_finding() {
    let Some(server) = shared().await else { return };
    let prefix = prefix();
    let blind = connect(&server.url(), &prefix, "").await;
    expect_finding(&blind, "rabbitmq.no-management", Rank::Loss, "the broker URL").await;
    server.manage("PUT", "/api/users/viewer", r#"{"password":"x","tags":"management"}"#).await.unwrap();
    let account = management(&server).replace("guest%3Aguest", "viewer%3Ax");
    let viewer = connect(&server.url(), &prefix, &account.replace("guest:guest", "viewer:x")).await;
    expect_finding(&viewer, "rabbitmq.not-visible", Rank::Loss, "nodes").await;
    create_group(&viewer).await;
}
