//! The server is killed, paused and disconnected under load.

use std::net::SocketAddr;

use landfall_core::{ErrorCode, Outcome};
use landfall_testkit::eventually;
use landfall_testkit::proxy::{CutPoint, Proxy, Trigger};
use landfall_testkit::traffic::{Plan, Traffic};

use crate::support::*;

#[tokio::test(flavor = "multi_thread")]
async fn server_killed_and_restarted_under_load_loses_nothing() {
    let Some(server) = exclusive().await else { return };
    let prefix = prefix();
    let broker = connect(&server.url(), &prefix, "").await;
    create_group(&broker).await;
    wait_for_persisted_queues(&server, &prefix).await;
    let traffic = traffic(&broker).await;
    traffic.wait_for_progress(1_000).await;
    server.kill_9().await.unwrap();
    server.restart().await.unwrap();
    traffic.wait_for_progress(1_000).await;
    traffic.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_paused_past_every_timeout_loses_nothing() {
    let Some(server) = exclusive().await else { return };
    let broker = connect_with(&server.url(), &prefix(), "timeout=4&heartbeat=2").await;
    let traffic = traffic(&broker).await;
    traffic.wait_for_progress(500).await;
    server.pause().await.unwrap();
    // The publisher's timeout has passed.
    traffic.wait_for_unknown().await;
    server.resume().await.unwrap();
    traffic.wait_for_progress(500).await;
    traffic.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_disconnects_lose_nothing_and_keep_order() {
    let Some(server) = shared().await else { return };
    let proxy = Proxy::start(SocketAddr::from(([127, 0, 0, 1], server.port()))).await.unwrap();
    let broker = connect(&proxy.url(&server.url()), &prefix(), "").await;
    let traffic = traffic(&broker).await;
    for _ in 0..4 {
        traffic.wait_for_progress(300).await;
        assert!(proxy.cut_all() > 0);
    }
    traffic.wait_for_progress(300).await;
    traffic.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_confirm_is_an_unknown_outcome() {
    let Some(server) = shared().await else { return };
    let proxy = Proxy::start(SocketAddr::from(([127, 0, 0, 1], server.port()))).await.unwrap();
    let prefix = prefix();
    let broker = connect(&proxy.url(&server.url()), &prefix, "").await;
    // The consumer connects without the proxy.
    let mut subscriber = subscribe(&connect(&server.url(), &prefix, "").await).await;
    assert!(publish_one(&broker, &keyed("a", 1)).await.is_accepted());
    let mut message = keyed("a", 2);
    message.payload = "CUTHERE".into();
    proxy.cut_next(Trigger::word("CUTHERE"), CutPoint::BeforeResponse);
    let outcome = publish_one(&broker, &message).await;
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    assert_eq!(proxy.counts().cut_before_response, 1);
    // The retry is a duplicate: RabbitMQ stores both, and the inbox accepts one.
    assert!(publish_one(&broker, &message).await.is_accepted());
    let arrived = [next(&mut subscriber).await, next(&mut subscriber).await, next(&mut subscriber).await];
    assert_eq!(arrived.map(|message| message.sequence), [Some(1), Some(2), Some(2)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn unsent_messages_are_refused_not_unknown() {
    let Some(server) = shared().await else { return };
    let proxy = Proxy::start(SocketAddr::from(([127, 0, 0, 1], server.port()))).await.unwrap();
    let broker = connect(&proxy.url(&server.url()), &prefix(), "connect_timeout=2").await;
    let mut subscriber = subscribe(&broker).await;
    proxy.refuse();
    proxy.cut_all();
    let refused = async || {
        let outcome = publish_one(&broker, &keyed("a", 1)).await;
        matches!(&outcome, Outcome::Refused(refusal) if refusal.code == ErrorCode::UNAVAILABLE && refusal.retriable)
    };
    eventually(SOON, "publishing is refused", refused).await;
    proxy.heal();
    let accepted = async || publish_one(&broker, &keyed("b", 1)).await.is_accepted();
    eventually(SOON, "the publisher reconnects", accepted).await;
    assert_eq!(next(&mut subscriber).await.key.unwrap().as_str(), "b");
}

#[tokio::test(flavor = "multi_thread")]
async fn group_created_under_load_receives_everything_in_order() {
    let Some(server) = shared().await else { return };
    for _ in 0..5 {
        let broker = connect(&server.url(), &prefix(), "").await;
        let mut traffic = Traffic::new(Plan { keys: 2, ..Plan::default() });
        traffic.add_sender(&broker);
        traffic.wait_for_failed_batches(1).await;
        traffic.add_consumer(&broker).await;
        traffic.wait_for_progress(200).await;
        traffic.finish().await;
    }
}
