//! The server is killed, paused or cut off under load: nothing is lost, doubled or out of order, and it drains by itself.

use futures_util::future::join_all;
use landfall_core::{Broker, ErrorCode, Outcome, TopicAdministration};
use landfall_testkit::eventually;
use landfall_testkit::proxy::{Moment, Proxy, ProxyCounts, Trigger};
use landfall_testkit::traffic::{Plan, Traffic, keyed, orders};

use crate::support::{SOON, connect, own, shared, traffic};

const PARAMETERS: &str = "timeout=2s&session_timeout=3s&partitions=4";

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_and_restarted_under_load_loses_nothing() {
    let Some(server) = own().await else { return };
    for atomic in [true, false] {
        let url = format!("{}?prefix=killed.{atomic}.&{PARAMETERS}&atomic={atomic}", server.url());
        let mut traffic = Traffic::new(Plan::default());
        for broker in [connect(&url).await, connect(&url).await] {
            traffic.join(&broker).await;
            traffic.send(&broker);
        }
        for _ in 0..2 {
            traffic.flows(500).await;
            server.kill_9().await.unwrap();
            traffic.fails(1).await;
            server.restart().await.unwrap();
        }
        traffic.flows(500).await;
        traffic.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_paused_past_every_timeout_loses_nothing() {
    let Some(server) = own().await else { return };
    let traffic = traffic(&connect(&format!("{}?{PARAMETERS}", server.url())).await).await;
    traffic.flows(500).await;
    server.pause().await.unwrap();
    // The timeout passes, and nobody knows.
    traffic.unknown().await;
    server.resume().await.unwrap();
    traffic.flows(500).await;
    traffic.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_cut_between_the_send_and_the_answer_loses_nothing() {
    let Some(server) = shared().await else { return };
    let proxy = Proxy::start(server.address().parse::<std::net::SocketAddr>().unwrap()).await.unwrap();
    for atomic in [true, false] {
        let url = format!("{}?prefix=cut.{atomic}.&{PARAMETERS}&atomic={atomic}", proxy.url(&server.url()));
        let traffic = traffic(&connect(&url).await).await;
        for moment in [Moment::BeforeTheAnswer, Moment::BeforeForwarding, Moment::BeforeTheAnswer] {
            traffic.flows(300).await;
            let cuts = |counts: ProxyCounts| counts.cut_before_the_answer + counts.cut_before_forwarding;
            let before = cuts(proxy.counts());
            proxy.cut_next(Trigger::word("Nats-Msg-Id"), moment);
            eventually(SOON, "a connection is cut", async || cuts(proxy.counts()) > before).await;
        }
        traffic.flows(300).await;
        traffic.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_cannot_reach_the_server_says_that_nothing_was_sent() {
    let Some(server) = own().await else { return };
    let broker = connect(&format!("{}?{PARAMETERS}", server.url())).await;
    let batch = [keyed("a", 1), keyed("a", 2)];
    let publisher = broker.publisher();
    // The first one makes the topic, which may take longer than an answer may on a busy machine.
    let accepted = async || publisher.publish(&batch).await.iter().all(Outcome::is_accepted);
    eventually(SOON, "the server takes it", accepted).await;
    server.kill_9().await.unwrap();
    eventually(SOON, "the loss of the connection is noticed", async || {
        let outcomes = publisher.publish(&batch).await;
        matches!(&outcomes[0], Outcome::Refused(refusal)
            if refusal.code == ErrorCode::UNAVAILABLE && refusal.retriable)
    })
    .await;
}

/// While there is no connection the client keeps what it is told for later, and takes only so much.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_asks_a_server_that_is_away_is_answered_in_time_however_many_ask() {
    let Some(server) = own().await else { return };
    let broker = connect(&format!("{}?{PARAMETERS}", server.url())).await;
    server.kill_9().await.unwrap();
    let lost = async || broker.publisher().publish(&[keyed("a", 1)]).await.iter().all(|one| !one.is_accepted());
    eventually(SOON, "the loss of the connection is noticed", lost).await;
    let asked = join_all((0..3_000).map(|_| broker.topics()));
    let answers = tokio::time::timeout(SOON, asked).await.expect("nobody waits for the server to come back");
    assert!(answers.iter().all(|answer| answer.as_ref().is_err_and(landfall_core::Error::is_temporary)));
    let made = tokio::time::timeout(SOON, broker.create_topic(&orders(), None)).await;
    assert!(made.expect("nobody waits for the server to come back").is_err_and(|error| error.is_temporary()));

    server.restart().await.unwrap();
    eventually(SOON, "the server is asked again", async || broker.create_topic(&orders(), None).await.is_ok()).await;
}
