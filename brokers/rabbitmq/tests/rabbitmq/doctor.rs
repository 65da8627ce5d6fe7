//! Every finding is provoked once on a real server, and a safe setup yields none.

use std::time::Duration;

use landfall_core::{Demands, Diagnose, Finding, Rank, Span};
use landfall_rabbitmq::RabbitMq;
use landfall_testkit::eventually;
use landfall_testkit::servers::RabbitMqServer;

use crate::support::*;

const DEMANDS: Demands = Demands { window: Span::Time(Duration::from_secs(7 * 24 * 3600)) };

/// A topic with a group, on what is one server on purpose.
async fn sound(server: &RabbitMqServer, prefix: &str) -> RabbitMq {
    let broker = connect(&server.url(), prefix, &format!("replicas=1&{}", management(server))).await;
    make_group(&broker).await;
    broker
}

async fn diagnose(broker: &RabbitMq) -> Vec<Finding> {
    broker.diagnose(&DEMANDS).await.unwrap()
}

/// Waits for `check` about `about`, which must say how it is mended. Policies take a moment to show.
async fn is_found(broker: &RabbitMq, check: &str, rank: Rank, about: &str) {
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
async fn a_safe_setup_is_said_to_be_healthy() {
    let Some(server) = shared().await else { return };
    let broker = sound(&server, &prefix()).await;
    // The members of a new queue are told a moment later.
    eventually(Duration::from_secs(60), "nothing is found", async || diagnose(&broker).await.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_few_members_are_found() {
    let Some(server) = shared().await else { return };
    let prefix = prefix();
    let broker = sound(&server, &prefix).await;
    let demanding = connect(&server.url(), &prefix, &management(&server)).await;
    is_found(&demanding, "rabbitmq.replicas", Rank::Loss, "orders:stock:0").await;
    drop(broker);
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_that_drop_messages_are_found() {
    let Some(server) = shared().await else { return };
    let prefix = prefix();
    let broker = sound(&server, &prefix).await;
    let limits = r#"{"delivery-limit":5,"max-length":1000,"message-ttl":60000,"expires":3600000}"#;
    policy(&server, &prefix, "queues", limits).await;
    for check in ["delivery-limit", "length-limit", "message-ttl", "queue-expires"] {
        is_found(&broker, &format!("rabbitmq.{check}"), Rank::Loss, "orders:stock:1").await;
    }
    // Kept for long enough it is no matter; turning messages away breaks the order.
    policy(&server, &prefix, "queues", r#"{"max-length":1000,"overflow":"reject-publish","message-ttl":604800000}"#)
        .await;
    is_found(&broker, "rabbitmq.length-limit", Rank::Order, "orders:stock:1").await;
    let gone = async || diagnose(&broker).await.iter().all(|finding| finding.check == "rabbitmq.length-limit");
    eventually(Duration::from_secs(60), "the other findings are gone", gone).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_swallows_what_nobody_takes_is_found() {
    let Some(server) = shared().await else { return };
    let prefix = prefix();
    let broker = sound(&server, &prefix).await;
    policy(&server, &format!("{prefix}orders$"), "exchanges", r#"{"alternate-exchange":"amq.fanout"}"#).await;
    is_found(&broker, "rabbitmq.alternate-exchange", Rank::Loss, "orders").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_and_exchanges_that_somebody_else_made_are_found() {
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
    is_found(&broker, "rabbitmq.exchange-type", Rank::Loss, "payments").await;
    is_found(&broker, "rabbitmq.not-durable", Rank::Loss, "payments").await;
    is_found(&broker, "rabbitmq.no-group", Rank::Latency, "payments").await;
    is_found(&broker, "rabbitmq.group-unbound", Rank::Loss, "payments:stock").await;
    is_found(&broker, "rabbitmq.slot-unbound", Rank::Order, "payments:stock").await;
    is_found(&broker, "rabbitmq.classic-queue", Rank::Loss, "payments:stock:0").await;
    is_found(&broker, "rabbitmq.not-durable", Rank::Loss, "payments:stock:0").await;
    is_found(&broker, "rabbitmq.single-active-consumer", Rank::Order, "payments:stock:0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_with_two_queues_is_found() {
    let Some(server) = shared().await else { return };
    let prefix = prefix();
    let broker = sound(&server, &prefix).await;
    let path = format!("/api/bindings/%2F/e/{prefix}orders%3Astock/q/{prefix}orders%3Astock%3A1");
    server.manage("POST", &path, r#"{"routing_key":"0"}"#).await.unwrap();
    is_found(&broker, "rabbitmq.slot-twice", Rank::Order, "orders:stock").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_seen_is_said() {
    let Some(server) = shared().await else { return };
    let prefix = prefix();
    let blind = connect(&server.url(), &prefix, "").await;
    is_found(&blind, "rabbitmq.no-management", Rank::Loss, "the broker URL").await;
    server.manage("PUT", "/api/users/viewer", r#"{"password":"x","tags":"management"}"#).await.unwrap();
    let account = management(&server).replace("guest%3Aguest", "viewer%3Ax");
    let viewer = connect(&server.url(), &prefix, &account.replace("guest:guest", "viewer:x")).await;
    is_found(&viewer, "rabbitmq.not-visible", Rank::Loss, "nodes").await;
    make_group(&viewer).await;
}
