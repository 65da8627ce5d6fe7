//! The server is killed, paused or cut off under load: nothing is lost, doubled or out of order, and it drains by itself.

use landfall_core::{Broker, ErrorCode, Outcome};
use landfall_testkit::eventually;
use landfall_testkit::proxy::{Moment, Proxy, ProxyCounts, Trigger};
use landfall_testkit::traffic::{Plan, Traffic, keyed};

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
