//! Three servers, of which one is killed under load.

use landfall_core::{Demands, Diagnose, Finding, Rank, Span};
use landfall_rabbitmq::RabbitMq;
use landfall_testkit::servers::RabbitMqServer;
use landfall_testkit::{current_test, eventually};

use crate::support::{SOON, connect_to, make_group, management, prefix, traffic};

/// A URL with all of them, tried in this order.
fn url(nodes: [&RabbitMqServer; 3]) -> String {
    let hosts = nodes.map(|node| format!("127.0.0.1:{}", node.port()));
    format!("amqp://guest:guest@{}", hosts.join(","))
}

/// With more patience than for one server: three agree on every queue and binding.
async fn connect(url: &str, prefix: &str, parameters: &str) -> RabbitMq {
    let url = format!("{url}?prefix={prefix}&partitions=2&timeout=30&heartbeat=4&{parameters}");
    connect_to(&url).await
}

async fn findings(broker: &RabbitMq) -> Vec<Finding> {
    broker.diagnose(&Demands { window: Span::days(7) }).await.unwrap()
}

/// Whether the server `node` is found to be down, and nothing else is.
async fn is_down(broker: &RabbitMq, node: &str) -> bool {
    let findings = findings(broker).await;
    let is_it = |found: &Finding| (found.check, found.rank) == ("rabbitmq.node-down", Rank::Latency);
    !findings.is_empty() && findings.iter().all(|found| is_it(found) && found.about == node)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_three_that_is_killed_under_load_loses_nothing_keeps_the_order_and_is_named_by_the_doctor() {
    let Some(nodes) = RabbitMqServer::start_cluster(&current_test()).await else { return };
    let [killed, one, two] = &nodes;
    // A queue is led by the server over which it was made. One pair of relay and consumer talks to that server, and
    // loses connection and leaders at once; the other talks to another server, and loses the leaders alone.
    let beside = prefix();
    make_group(&connect(&killed.url(), &beside, "").await).await;
    let beside = connect(&url([one, two, killed]), &beside, "").await;
    let there = connect(&url([killed, one, two]), &prefix(), &management(one)).await;
    let loads = [traffic(&there).await, traffic(&beside).await];
    // Three members are what the doctor wants if nobody says otherwise.
    eventually(SOON, "a cluster of three is sound", async || findings(&there).await.is_empty()).await;
    for load in &loads {
        load.flows(600).await;
    }
    killed.kill_9().await.unwrap();
    eventually(SOON, "the doctor names it", async || is_down(&there, killed.node()).await).await;
    for load in loads {
        load.flows(600).await;
        load.finish().await;
    }
    killed.restart().await.unwrap();
    eventually(SOON, "it is one of three again", async || findings(&there).await.is_empty()).await;
}
