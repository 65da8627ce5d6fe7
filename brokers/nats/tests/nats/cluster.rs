//! Three servers, and one of them is killed under load.

use landfall_core::TopicAdministration;
use landfall_testkit::servers::{NatsOptions, NatsServer};
use landfall_testkit::traffic::{Plan, Traffic, orders};
use landfall_testkit::{current_test, eventually};

use crate::support::{SOON, connect};

/// Which of the servers leads the topic's stream, when one does.
async fn leader(url: &str) -> Option<usize> {
    let context = async_nats::jetstream::new(async_nats::connect(url).await.ok()?);
    let leader = context.get_stream("orders").await.ok()?.cached_info().cluster.as_ref()?.leader.clone()?;
    leader.strip_prefix("node-")?.parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_leads_the_topic_is_killed_under_load_and_nothing_is_lost() {
    let Some(servers) = NatsServer::start_cluster(&current_test(), NatsOptions::default()).await else { return };
    let hosts = servers.each_ref().map(NatsServer::address).join(",");
    let url = format!("nats://{hosts}?timeout=2s&session_timeout=3s&partitions=4");
    let broker = connect(&url).await;
    // A leader must be found first.
    eventually(SOON, "the cluster takes a topic", async || broker.create_topic(&orders(), None).await.is_ok()).await;

    let other = connect(&url).await;
    let mut traffic = Traffic::new(Plan::default());
    for broker in [&broker, &other] {
        traffic.join(broker).await;
        traffic.send(broker);
    }
    for _ in 0..2 {
        traffic.flows(300).await;
        let mut leading = None;
        eventually(SOON, "somebody leads the topic", async || {
            leading = leader(&servers[0].url()).await;
            leading.is_some()
        })
        .await;
        let server = &servers[leading.unwrap()];
        server.kill_9().await.unwrap();
        // The other two go on without it.
        traffic.flows(300).await;
        server.restart().await.unwrap();
    }
    traffic.finish().await;
}
