//! Three servers, and one of them is killed under load.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod scene;

use landfall_core::{Broker, TopicAdministration};
use landfall_testkit::servers::{NatsOptions, NatsServer};
use landfall_testkit::{current_test, eventually};
use scene::{SOON, Scene, connect, topic};

#[tokio::test(flavor = "multi_thread")]
async fn each_server_of_a_cluster_may_be_killed_in_its_turn_under_load() {
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
    for server in &servers {
        scene.until_accepted(300).await;
        scene.until_handled(200).await;
        server.kill_9().await.unwrap();
        // The other two go on without it.
        scene.until_accepted(300).await;
        scene.until_handled(200).await;
        server.restart().await.unwrap();
    }
    scene.end(senders).await;
}
