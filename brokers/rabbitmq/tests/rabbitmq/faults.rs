//! The server killed, paused and cut off while messages are on their way.

use std::net::SocketAddr;

use landfall_core::{ErrorCode, Outcome};
use landfall_testkit::eventually;
use landfall_testkit::proxy::{Moment, Proxy, Trigger};
use landfall_testkit::traffic::{Plan, Traffic};

use crate::support::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_and_restarted_under_load_loses_nothing_and_keeps_the_order() {
    let Some(server) = alone().await else { return };
    let prefix = prefix();
    let broker = connect(&server.url(), &prefix, "").await;
    make_group(&broker).await;
    queues_are_written_down(&server, &prefix).await;
    let traffic = traffic(&broker).await;
    traffic.flows(1_000).await;
    server.kill_9().await.unwrap();
    server.restart().await.unwrap();
    traffic.flows(1_000).await;
    traffic.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_paused_past_every_timeout_loses_nothing_and_keeps_the_order() {
    let Some(server) = alone().await else { return };
    let broker = connect_with(&server.url(), &prefix(), "timeout=4&heartbeat=2").await;
    let traffic = traffic(&broker).await;
    traffic.flows(500).await;
    server.pause().await.unwrap();
    // The publisher has waited too long.
    traffic.unknown().await;
    server.resume().await.unwrap();
    traffic.flows(500).await;
    traffic.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_break_again_and_again_lose_nothing_and_keep_the_order() {
    let Some(server) = shared().await else { return };
    let proxy = Proxy::start(SocketAddr::from(([127, 0, 0, 1], server.port()))).await.unwrap();
    let broker = connect(&proxy.url(&server.url()), &prefix(), "").await;
    let traffic = traffic(&broker).await;
    for _ in 0..4 {
        traffic.flows(300).await;
        assert!(proxy.cut_all() > 0);
    }
    traffic.flows(300).await;
    traffic.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_cut_before_the_confirm_leaves_an_unknown_outcome_and_one_effect() {
    let Some(server) = shared().await else { return };
    let proxy = Proxy::start(SocketAddr::from(([127, 0, 0, 1], server.port()))).await.unwrap();
    let prefix = prefix();
    let broker = connect(&proxy.url(&server.url()), &prefix, "").await;
    // The consumer is not behind the proxy.
    let mut subscriber = subscribe(&connect(&server.url(), &prefix, "").await).await;
    assert!(publish_one(&broker, &keyed("a", 1)).await.is_accepted());
    let mut message = keyed("a", 2);
    message.payload = "CUTHERE".into();
    proxy.cut_next(Trigger::word("CUTHERE"), Moment::BeforeTheAnswer);
    let outcome = publish_one(&broker, &message).await;
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    assert_eq!(proxy.counts().cut_before_the_answer, 1);
    // Sent again it is a copy: RabbitMQ stores both, and the inbox takes one.
    assert!(publish_one(&broker, &message).await.is_accepted());
    let arrived = [next(&mut subscriber).await, next(&mut subscriber).await, next(&mut subscriber).await];
    assert_eq!(arrived.map(|message| message.sequence), [Some(1), Some(2), Some(2)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_sent_is_refused_for_now_and_not_unknown() {
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
    eventually(SOON, "nothing can be sent", refused).await;
    proxy.heal();
    let accepted = async || publish_one(&broker, &keyed("b", 1)).await.is_accepted();
    eventually(SOON, "it connects again", accepted).await;
    assert_eq!(next(&mut subscriber).await.key.unwrap().as_str(), "b");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_comes_while_batches_are_on_their_way_gets_everything_in_order() {
    let Some(server) = shared().await else { return };
    for _ in 0..5 {
        let broker = connect(&server.url(), &prefix(), "").await;
        let mut traffic = Traffic::new(Plan { keys: 2, ..Plan::default() });
        traffic.send(&broker);
        traffic.fails(1).await;
        traffic.join(&broker).await;
        traffic.flows(200).await;
        traffic.finish().await;
    }
}
