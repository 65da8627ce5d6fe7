//! Redis fails under load, in every way that a test can bring about: nothing is lost, nothing takes effect twice, the order
//! of each key holds, and it drains by itself.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod support;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use landfall_core::{Broker, ErrorCode, Outcome, StartAt};
use landfall_redis::Redis;
use landfall_testkit::current_test;
use landfall_testkit::proxy::{Moment, Proxy, Trigger};
use landfall_testkit::servers::{RedisOptions, RedisServer};
use support::load::Load;
use support::{connect, keyed, topic};

/// A Redis that this test may stop, with short patience on this side.
const IMPATIENT: &str = "timeout=700ms&connect_timeout=700ms&lease=1s";

async fn server() -> Option<RedisServer> {
    RedisServer::start_with(&current_test(), RedisOptions::durable()).await
}

async fn proxy(server: &RedisServer) -> Proxy {
    Proxy::start(SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()))).await.unwrap()
}

/// The same Redis twice, with connections of their own.
async fn two(port: u16) -> (Arc<dyn Broker>, Vec<Arc<dyn Broker>>) {
    let options = support::options(port, IMPATIENT);
    let mut brokers = Vec::new();
    for _ in 0..3 {
        brokers.push(Arc::new(Redis::connect(options.clone()).await.unwrap()) as Arc<dyn Broker>);
    }
    (brokers.remove(0), brokers)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_is_killed_and_restarted_under_load_loses_and_doubles_nothing() {
    let Some(server) = server().await else { return };
    let (sending, receiving) = two(server.port()).await;
    let load = Load::start(sending, receiving, 6_000);
    for part in [1_000, 3_000] {
        load.until("a part took effect", |counts| counts.effects >= part).await;
        server.kill_9().await.unwrap();
        let failed = load.counts().refused + load.counts().unknown;
        load.until("the relay notices", |counts| counts.refused + counts.unknown > failed).await;
        server.restart().await.unwrap();
    }
    let counts = load.drain().await;
    assert!(counts.refused > 0, "it was down for a while: {counts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_past_every_timeout_and_lease_is_unknown_and_breaks_nothing() {
    let Some(server) = server().await else { return };
    let (sending, receiving) = two(server.port()).await;
    let load = Load::start(sending, receiving, 6_000);
    for part in [1_000, 3_000] {
        load.until("a part took effect", |counts| counts.effects >= part).await;
        let before = load.counts();
        server.pause().await.unwrap();
        load.until("the relay has given up waiting", |counts| counts.unknown > before.unknown).await;
        // Twice as long as a lease lasts: a connection is tried for 700 ms each time.
        load.until("and has tried again", |counts| counts.refused > before.refused + 100).await;
        server.resume().await.unwrap();
    }
    let counts = load.drain().await;
    assert!(counts.unknown > 0, "{counts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_break_all_the_time_break_nothing_else() {
    let Some(server) = server().await else { return };
    let proxy = proxy(&server).await;
    let (sending, receiving) = two(proxy.address().port()).await;
    let load = Load::start(sending, receiving, 6_000);
    for part in (500..6_000).step_by(500) {
        load.until("a part took effect", |counts| counts.effects >= part).await;
        proxy.cut_all();
        // The next batch happens, and nobody is told.
        proxy.cut_next(Trigger::word("EVALSHA"), Moment::BeforeTheAnswer);
    }
    proxy.heal();
    let counts = load.drain().await;
    assert!(counts.unknown > 0, "{counts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_whose_answer_was_lost_is_unknown_and_its_copy_is_not_stored_again() {
    let Some(server) = support::server().await else { return };
    let proxy = proxy(&server).await;
    let redis = connect(proxy.address().port(), "").await;
    let publisher = redis.publisher();
    publisher.publish(&[keyed("a", 0)]).await;

    let batch: Vec<_> = (1..=20).map(|n| keyed("a", n)).collect();
    for moment in [Moment::BeforeForwarding, Moment::BeforeTheAnswer] {
        proxy.cut_next(Trigger::word("EVALSHA"), moment);
        let outcomes = publisher.publish(&batch).await;
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Unknown(_))), "{moment:?}: {outcomes:?}");
    }
    // The second of them was stored.
    assert_eq!(redis.topics().await.unwrap()[0].messages, 21);
    let outcomes = publisher.publish(&batch).await;
    assert!(outcomes.iter().all(Outcome::is_accepted), "{outcomes:?}");
    let stored = redis.read(&topic("orders"), StartAt::Beginning).await.unwrap().read(100).await.unwrap();
    let numbers: Vec<_> = stored.iter().map(|stored| stored.message.as_ref().unwrap().sequence.unwrap()).collect();
    assert_eq!(numbers, (0..=20).collect::<Vec<_>>());
    // What was stored before is where the copy is told to be.
    let offsets: Vec<_> = stored[1..].iter().map(|stored| Outcome::Accepted(stored.position)).collect();
    assert_eq!(outcomes, offsets);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_sent_at_all_is_refused_and_may_be_tried_later() {
    let Some(server) = support::server().await else { return };
    let proxy = proxy(&server).await;
    let redis = connect(proxy.address().port(), "connect_timeout=500ms").await;
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
async fn scripts_that_the_server_has_forgotten_are_brought_again() {
    let Some(server) = server().await else { return };
    let redis = connect(server.port(), "").await;
    let publisher = redis.publisher();
    for number in 1..=3 {
        assert!(publisher.publish(&[keyed("a", number)]).await[0].is_accepted());
        server.ask("SCRIPT FLUSH").await.unwrap();
    }
    assert_eq!(redis.topics().await.unwrap()[0].messages, 3);
}
