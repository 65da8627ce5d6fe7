//! The server killed, paused and cut off while messages are on their way.

mod support;

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use landfall_core::{ErrorCode, Outcome};
use landfall_testkit::eventually;
use landfall_testkit::proxy::{Moment, Proxy, Trigger};
use support::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_and_restarted_under_load_loses_nothing_and_keeps_the_order() {
    let Some(server) = server().await else { return };
    let _alone = ALONE.lock().await;
    let prefix = prefix();
    let broker = connect(&server.url(), &prefix, "").await;
    subscribe(&broker).await.close().await.unwrap();
    queues_are_written_down(&server, &prefix).await;
    let run = Run::start(&broker, 40, 100).await;
    run.has_accepted(0.25).await;
    server.kill_9().await.unwrap();
    server.restart().await.unwrap();
    run.drains().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_paused_past_every_timeout_loses_nothing_and_keeps_the_order() {
    let Some(server) = server().await else { return };
    let _alone = ALONE.lock().await;
    let broker = connect(&server.url(), &prefix(), "").await;
    let run = Run::start(&broker, 20, 100).await;
    run.has_accepted(0.2).await;
    server.pause().await.unwrap();
    let unknown = run.unknown.clone();
    eventually(SOON, "the publisher has waited too long", async || unknown.load(Ordering::SeqCst) > 0).await;
    server.resume().await.unwrap();
    run.drains().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_break_again_and_again_lose_nothing_and_keep_the_order() {
    let Some(server) = server().await else { return };
    let _alone = ALONE.lock().await;
    let proxy = Proxy::start(SocketAddr::from(([127, 0, 0, 1], server.port()))).await.unwrap();
    let broker = connect(&proxy.url(&server.url()), &prefix(), "").await;
    let run = Run::start(&broker, 20, 100).await;
    for part in [0.1, 0.3, 0.5, 0.7] {
        run.has_accepted(part).await;
        assert!(proxy.cut_all() > 0);
    }
    run.drains().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_cut_before_the_confirm_leaves_an_unknown_outcome_and_one_effect() {
    let Some(server) = server().await else { return };
    let _alone = ALONE.lock().await;
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
    let Some(server) = server().await else { return };
    let _alone = ALONE.lock().await;
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
    let Some(server) = server().await else { return };
    let _alone = ALONE.lock().await;
    for _ in 0..5 {
        let broker = connect(&server.url(), &prefix(), "").await;
        Run::start_before_its_group(&broker, 2, 100).await.drains().await;
    }
}
