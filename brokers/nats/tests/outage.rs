//! The server is killed, paused or cut off under load: nothing is lost, doubled or out of order, and it drains by itself.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod scene;

use landfall_core::Broker;
use landfall_testkit::proxy::{Moment, Proxy, Trigger};
use landfall_testkit::servers::{NatsOptions, NatsServer};
use landfall_testkit::{current_test, eventually};
use scene::{SOON, Scene, connect};

const PARAMETERS: &str = "timeout=1s&session_timeout=2s&partitions=4";

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_and_restarted_under_load_loses_nothing() {
    let Some(server) = NatsServer::start(&current_test(), NatsOptions::default()).await else { return };
    for atomic in [true, false] {
        let url = format!("{}?prefix=killed.{atomic}.&{PARAMETERS}&atomic={atomic}", server.url());
        let (one, two) = (connect(&url).await, connect(&url).await);
        let scene = Scene::new();
        let senders = vec![scene.send(1, one.publisher()), scene.send(2, two.publisher())];
        let consumers = [scene.consume(&one).await, scene.consume(&two).await];
        for _ in 0..2 {
            scene.until_accepted(500).await;
            scene.until_handled(300).await;
            server.kill_9().await.unwrap();
            scene.until_it_fails().await;
            server.restart().await.unwrap();
        }
        scene.until_accepted(500).await;
        scene.end(senders).await;
        consumers.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_paused_past_every_timeout_loses_nothing() {
    let Some(server) = NatsServer::start(&current_test(), NatsOptions::default()).await else { return };
    let broker = connect(&format!("{}?{PARAMETERS}", server.url())).await;
    let scene = Scene::new();
    let senders = vec![scene.send(1, broker.publisher())];
    let _consumer = scene.consume(&broker).await;
    scene.until_accepted(500).await;
    server.pause().await.unwrap();
    // The timeout passes, and nobody knows.
    scene.until_it_fails().await;
    assert!(scene.unknown() > 0);
    server.resume().await.unwrap();
    scene.until_accepted(500).await;
    scene.end(senders).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_cut_between_the_send_and_the_answer_loses_nothing() {
    let Some(server) = NatsServer::start(&current_test(), NatsOptions::default()).await else { return };
    let proxy = Proxy::start(server.address().parse::<std::net::SocketAddr>().unwrap()).await.unwrap();
    for atomic in [true, false] {
        let url = format!("{}?prefix=cut.{atomic}.&{PARAMETERS}&atomic={atomic}", proxy.url(&server.url()));
        let broker = connect(&url).await;
        let scene = Scene::new();
        let senders = vec![scene.send(1, broker.publisher())];
        let _consumer = scene.consume(&broker).await;
        for moment in [Moment::BeforeTheAnswer, Moment::BeforeForwarding, Moment::BeforeTheAnswer] {
            scene.until_accepted(300).await;
            let cuts = |counts: landfall_testkit::proxy::ProxyCounts| {
                counts.cut_before_the_answer + counts.cut_before_forwarding
            };
            let before = cuts(proxy.counts());
            proxy.cut_next(Trigger::word("Nats-Msg-Id"), moment);
            eventually(SOON, "a connection is cut", async || cuts(proxy.counts()) > before).await;
        }
        scene.until_accepted(300).await;
        scene.end(senders).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_cannot_reach_the_server_says_that_nothing_was_sent() {
    let Some(server) = NatsServer::start(&current_test(), NatsOptions::default()).await else { return };
    let broker = connect(&format!("{}?{PARAMETERS}", server.url())).await;
    let batch = [scene::keyed("a", 1), scene::keyed("a", 2)];
    let publisher = broker.publisher();
    assert!(publisher.publish(&batch).await.iter().all(landfall_core::Outcome::is_accepted));
    server.kill_9().await.unwrap();
    eventually(SOON, "the loss of the connection is noticed", async || {
        let outcomes = publisher.publish(&batch).await;
        matches!(&outcomes[0], landfall_core::Outcome::Refused(refusal)
            if refusal.code == landfall_core::ErrorCode::UNAVAILABLE && refusal.retriable)
    })
    .await;
}
