//! A cluster of three servers, one of which is killed under load.

use landfall_core::TopicAdministration;
use landfall_testkit::servers::{NatsOptions, NatsServer};
use landfall_testkit::traffic::{Plan, Traffic, orders};
use landfall_testkit::{current_test, eventually};

use crate::support::{SOON, connect};

/// Returns the index of the server that leads the topic's stream, if it has a leader.
async fn leader(url: &str) -> Option<usize> {
    let context = async_nats::jetstream::new(async_nats::connect(url).await.ok()?);
    let leader = context.get_stream("orders").await.ok()?.cached_info().cluster.as_ref()?.leader.clone()?;
    leader.strip_prefix("node-")?.parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn killing_the_stream_leader_under_load_loses_nothing() {
    let Some(servers) = NatsServer::start_cluster(&current_test(), NatsOptions::default()).await else { return };
    let hosts = servers.each_ref().map(NatsServer::address).join(",");
    let url = format!("nats://{hosts}?timeout=2s&session_timeout=3s&partitions=4");
    let broker = connect(&url).await;
    // The cluster must elect a leader first.
    eventually(SOON, "the cluster creates a topic", async || broker.create_topic(&orders(), None).await.is_ok()).await;

    let other = connect(&url).await;
    let mut traffic = Traffic::new(Plan::default());
    for broker in [&broker, &other] {
        traffic.add_consumer(broker).await;
        traffic.add_sender(broker);
    }
    for _ in 0..2 {
        traffic.wait_for_progress(300).await;
        let mut leading = None;
        eventually(SOON, "the topic has a leader", async || {
            leading = leader(&servers[0].url()).await;
            leading.is_some()
        })
        .await;
        let server = &servers[leading.unwrap()];
        server.kill_9().await.unwrap();
        // The other two servers continue without it.
        traffic.wait_for_progress(300).await;
        server.restart().await.unwrap();
    }
    traffic.finish().await;
}
