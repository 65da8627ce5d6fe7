//! Redis fails under load in various ways. Nothing is lost, no effect happens twice, order per key holds, and the
//! backlog drains without intervention.

use std::net::{Ipv4Addr, SocketAddr};

use landfall_core::{Broker, ErrorCode, Outcome, StartAt};
use landfall_testkit::proxy::{CutPoint, Proxy, Trigger};
use landfall_testkit::servers::RedisServer;
use landfall_testkit::traffic::{Traffic, keyed, orders};

use crate::support::{connect, options_for, own, several, shared};

/// Short timeouts, so that an outage of seconds exceeds them.
const SHORT_TIMEOUTS: &str = "timeout=700ms&connect_timeout=700ms&lease=1s";

async fn proxy(server: &RedisServer) -> Proxy {
    Proxy::start(SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()))).await.unwrap()
}

/// One publisher and two consumers, each with its own connections.
async fn traffic(port: u16) -> Traffic {
    let mut brokers = several(&options_for(port, SHORT_TIMEOUTS), 3).await;
    Traffic::start(brokers.remove(0), brokers).await
}

#[tokio::test(flavor = "multi_thread")]
async fn server_killed_and_restarted_under_load_loses_nothing() {
    let Some(server) = own().await else { return };
    let traffic = traffic(server.port()).await;
    for _ in 0..2 {
        traffic.wait_for_progress(1_000).await;
        server.kill_9().await.unwrap();
        traffic.wait_for_refusal(ErrorCode::UNAVAILABLE).await;
        server.restart().await.unwrap();
    }
    traffic.wait_for_progress(1_000).await;
    traffic.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_paused_past_every_timeout_loses_nothing() {
    let Some(server) = own().await else { return };
    let traffic = traffic(server.port()).await;
    for _ in 0..2 {
        traffic.wait_for_progress(1_000).await;
        server.pause().await.unwrap();
        traffic.wait_for_unknown().await;
        // Longer than a lease: each connection attempt takes 700 ms.
        traffic.wait_for_refusal(ErrorCode::UNAVAILABLE).await;
        traffic.wait_for_failed_batches(2).await;
        server.resume().await.unwrap();
    }
    traffic.wait_for_progress(1_000).await;
    traffic.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_disconnects_lose_nothing_and_keep_order() {
    let Some(server) = shared().await else { return };
    let proxy = proxy(&server).await;
    let traffic = traffic(proxy.address().port()).await;
    for _ in 0..10 {
        traffic.wait_for_progress(500).await;
        proxy.cut_all();
        // The next batch is stored, but its answer is lost.
        proxy.cut_next(Trigger::word("key-3/"), CutPoint::BeforeResponse);
        traffic.wait_for_unknown().await;
    }
    traffic.wait_for_progress(500).await;
    traffic.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_answer_causes_no_duplicate() {
    let Some(server) = shared().await else { return };
    let proxy = proxy(&server).await;
    let redis = connect(proxy.address().port(), "").await;
    let publisher = redis.publisher();
    publisher.publish(&[keyed("a", 0)]).await;

    let batch: Vec<_> = (1..=20).map(|n| keyed("a", n)).collect();
    for moment in [CutPoint::BeforeForwarding, CutPoint::BeforeResponse] {
        proxy.cut_next(Trigger::word("EVALSHA"), moment);
        let outcomes = publisher.publish(&batch).await;
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Unknown(_))), "{moment:?}: {outcomes:?}");
    }
    // Only the second attempt was stored.
    assert_eq!(redis.topics().await.unwrap()[0].messages, 21);
    let outcomes = publisher.publish(&batch).await;
    assert!(outcomes.iter().all(Outcome::is_accepted), "{outcomes:?}");
    let stored = redis.read(&orders(), StartAt::Beginning).await.unwrap().read(100).await.unwrap();
    let numbers: Vec<_> = stored.iter().map(|stored| stored.message.as_ref().unwrap().sequence.unwrap()).collect();
    assert_eq!(numbers, (0..=20).collect::<Vec<_>>());
    // The duplicate reports the position of the original.
    let offsets: Vec<_> = stored[1..].iter().map(|stored| Outcome::Accepted(stored.position)).collect();
    assert_eq!(outcomes, offsets);
}

#[tokio::test(flavor = "multi_thread")]
async fn unsent_messages_are_refused_as_retriable() {
    let Some(server) = shared().await else { return };
    let proxy = proxy(&server).await;
    let redis = connect(proxy.address().port(), "").await;
    proxy.refuse();
    proxy.cut_all();
    let publisher = redis.publisher();
    let outcomes = publisher.publish(&[keyed("a", 1), keyed("b", 1), keyed("a", 2)]).await;
    let codes: Vec<_> = outcomes
        .iter()
        .map(|outcome| match outcome {
            Outcome::Refused(refusal) if refusal.retriable => refusal.code.clone(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(codes, [ErrorCode::UNAVAILABLE, ErrorCode::UNAVAILABLE, ErrorCode::PREDECESSOR]);
    proxy.heal();
    assert!(publisher.publish(&[keyed("a", 1)]).await[0].is_accepted());
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_scripts_are_loaded_again() {
    let Some(server) = own().await else { return };
    let redis = connect(server.port(), "").await;
    let publisher = redis.publisher();
    for number in 1..=3 {
        assert!(publisher.publish(&[keyed("a", number)]).await[0].is_accepted());
        server.ask("SCRIPT FLUSH").await.unwrap();
    }
    assert_eq!(redis.topics().await.unwrap()[0].messages, 3);
}
