//! Redis fails under load, in every way that a test can bring about: nothing is lost, nothing takes effect twice, the order
//! of each key holds, and it drains by itself.

use std::net::{Ipv4Addr, SocketAddr};

use landfall_core::{Broker, ErrorCode, Outcome, StartAt};
use landfall_testkit::proxy::{Moment, Proxy, Trigger};
use landfall_testkit::servers::RedisServer;
use landfall_testkit::traffic::{Traffic, keyed, orders};

use crate::support::{connect, options_for, own, several, shared};

/// Short patience, so that an outage of seconds is long.
const IMPATIENT: &str = "timeout=700ms&connect_timeout=700ms&lease=1s";

async fn proxy(server: &RedisServer) -> Proxy {
    Proxy::start(SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()))).await.unwrap()
}

/// A sender and two consumers, with connections of their own.
async fn traffic(port: u16) -> Traffic {
    let mut brokers = several(&options_for(port, IMPATIENT), 3).await;
    Traffic::start(brokers.remove(0), brokers).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_is_killed_and_restarted_under_load_loses_and_doubles_nothing() {
    let Some(server) = own().await else { return };
    let traffic = traffic(server.port()).await;
    for _ in 0..2 {
        traffic.flows(1_000).await;
        server.kill_9().await.unwrap();
        traffic.suffers(ErrorCode::UNAVAILABLE).await;
        server.restart().await.unwrap();
    }
    traffic.flows(1_000).await;
    traffic.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_past_every_timeout_and_lease_is_unknown_and_breaks_nothing() {
    let Some(server) = own().await else { return };
    let traffic = traffic(server.port()).await;
    for _ in 0..2 {
        traffic.flows(1_000).await;
        server.pause().await.unwrap();
        traffic.unknown().await;
        // Twice as long as a lease lasts: a connection is tried for 700 ms each time.
        traffic.suffers(ErrorCode::UNAVAILABLE).await;
        traffic.fails(2).await;
        server.resume().await.unwrap();
    }
    traffic.flows(1_000).await;
    traffic.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_break_all_the_time_break_nothing_else() {
    let Some(server) = shared().await else { return };
    let proxy = proxy(&server).await;
    let traffic = traffic(proxy.address().port()).await;
    for _ in 0..10 {
        traffic.flows(500).await;
        proxy.cut_all();
        // The next batch happens, and nobody is told.
        proxy.cut_next(Trigger::word("key-3/"), Moment::BeforeTheAnswer);
        traffic.unknown().await;
    }
    traffic.flows(500).await;
    traffic.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_whose_answer_was_lost_is_unknown_and_its_copy_is_not_stored_again() {
    let Some(server) = shared().await else { return };
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
    let stored = redis.read(&orders(), StartAt::Beginning).await.unwrap().read(100).await.unwrap();
    let numbers: Vec<_> = stored.iter().map(|stored| stored.message.as_ref().unwrap().sequence.unwrap()).collect();
    assert_eq!(numbers, (0..=20).collect::<Vec<_>>());
    // What was stored before is where the copy is told to be.
    let offsets: Vec<_> = stored[1..].iter().map(|stored| Outcome::Accepted(stored.position)).collect();
    assert_eq!(outcomes, offsets);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_sent_at_all_is_refused_and_may_be_tried_later() {
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
async fn scripts_that_the_server_has_forgotten_are_brought_again() {
    let Some(server) = own().await else { return };
    let redis = connect(server.port(), "").await;
    let publisher = redis.publisher();
    for number in 1..=3 {
        assert!(publisher.publish(&[keyed("a", number)]).await[0].is_accepted());
        server.ask("SCRIPT FLUSH").await.unwrap();
    }
    assert_eq!(redis.topics().await.unwrap()[0].messages, 3);
}
