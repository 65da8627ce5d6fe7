//! Three servers, and one of them is killed under load.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod scene;

use landfall_core::{Broker, TopicAdministration};
use landfall_testkit::servers::{NatsOptions, NatsServer};
use landfall_testkit::{current_test, eventually};
use scene::{SOON, Scene, connect, topic};

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
    eventually(SOON, "the cluster takes a topic", async || broker.create_topic(&topic(), None).await.is_ok()).await;

    let other = connect(&url).await;
    let scene = Scene::new();
    let senders = vec![scene.send(1, broker.publisher()), scene.send(2, other.publisher())];
    let _consumers = [scene.consume(&broker).await, scene.consume(&other).await];
    for _ in 0..2 {
        scene.until_accepted(300).await;
        scene.until_handled(200).await;
        let mut leading = None;
        eventually(SOON, "somebody leads the topic", async || {
            leading = leader(&servers[0].url()).await;
            leading.is_some()
        })
        .await;
        let server = &servers[leading.unwrap()];
        server.kill_9().await.unwrap();
        // The other two go on without it.
        scene.until_accepted(300).await;
        scene.until_handled(200).await;
        server.restart().await.unwrap();
    }
    scene.end(senders).await;
}
