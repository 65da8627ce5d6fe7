//! A cluster of three servers, one of which is killed under load.

use landfall_core::adapter::Demands;
use landfall_core::{Diagnose, Finding, Rank, Span};
use landfall_rabbitmq::RabbitMq;
use landfall_testkit::servers::RabbitMqServer;
use landfall_testkit::{current_test, eventually};

use crate::support::{SOON, connect_to, create_group, management, prefix, traffic};

/// A URL with all nodes, tried in this order.
fn url(nodes: [&RabbitMqServer; 3]) -> String {
    let hosts = nodes.map(|node| format!("127.0.0.1:{}", node.port()));
    format!("amqp://guest:guest@{}", hosts.join(","))
}

/// Connects with longer timeouts than for one server: three must agree on every queue and binding.
async fn connect(url: &str, prefix: &str, parameters: &str) -> RabbitMq {
    let url = format!("{url}?prefix={prefix}&partitions=2&timeout=30&heartbeat=4&{parameters}");
    connect_to(&url).await
}

async fn findings(broker: &RabbitMq) -> Vec<Finding> {
    broker.diagnose(&Demands { window: Span::days(7) }).await.unwrap()
}

/// Whether the doctor reports that `node` is down, and nothing else.
async fn is_down(broker: &RabbitMq, node: &str) -> bool {
    let findings = findings(broker).await;
    let is_it = |found: &Finding| (found.check, found.rank) == ("rabbitmq.node-down", Rank::Latency);
    !findings.is_empty() && findings.iter().all(|found| is_it(found) && found.about == node)
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_cluster_node_loses_nothing_and_is_a_finding() {
    let Some(nodes) = RabbitMqServer::start_cluster(&current_test()).await else { return };
    let [killed, one, two] = &nodes;
    // The server that creates a queue leads it. One pair of relay and consumer connects to that server, and loses its
    // connection and the leaders at once. The other pair connects to another server, and loses only the leaders.
    let beside = prefix();
    create_group(&connect(&killed.url(), &beside, "").await).await;
    let beside = connect(&url([one, two, killed]), &beside, "").await;
    let there = connect(&url([killed, one, two]), &prefix(), &management(one)).await;
    let loads = [traffic(&there).await, traffic(&beside).await];
    // By default the doctor requires three replicas.
    eventually(SOON, "a cluster of three has no findings", async || findings(&there).await.is_empty()).await;
    for load in &loads {
        load.wait_for_progress(600).await;
    }
    killed.kill_9().await.unwrap();
    eventually(SOON, "the doctor reports the node", async || is_down(&there, killed.node()).await).await;
    for load in loads {
        load.wait_for_progress(600).await;
        load.finish().await;
    }
    killed.restart().await.unwrap();
    eventually(SOON, "the findings disappear after the restart", async || findings(&there).await.is_empty()).await;
}
