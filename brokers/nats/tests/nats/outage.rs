//! The server is killed, paused or disconnected under load. Nothing is lost, duplicated or reordered, and the backlog
//! drains without intervention.

use futures_util::future::join_all;
use landfall_core::{Broker, ErrorCode, Outcome, TopicAdministration};
use landfall_testkit::eventually;
use landfall_testkit::proxy::{CutPoint, Proxy, ProxyCounts, Trigger};
use landfall_testkit::traffic::{Plan, Traffic, keyed, orders};

use crate::support::{SOON, connect, own, shared, traffic};

const PARAMETERS: &str = "timeout=2s&session_timeout=3s&partitions=4";

#[tokio::test(flavor = "multi_thread")]
async fn server_killed_and_restarted_under_load_loses_nothing() {
    let Some(server) = own().await else { return };
    for atomic in [true, false] {
        let url = format!("{}?prefix=killed.{atomic}.&{PARAMETERS}&atomic={atomic}", server.url());
        let mut traffic = Traffic::new(Plan::default());
        for broker in [connect(&url).await, connect(&url).await] {
            traffic.add_consumer(&broker).await;
            traffic.add_sender(&broker);
        }
        for _ in 0..2 {
            traffic.wait_for_progress(500).await;
            server.kill_9().await.unwrap();
            traffic.wait_for_failed_batches(1).await;
            server.restart().await.unwrap();
        }
        traffic.wait_for_progress(500).await;
        traffic.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn server_paused_past_every_timeout_loses_nothing() {
    let Some(server) = own().await else { return };
    let traffic = traffic(&connect(&format!("{}?{PARAMETERS}", server.url())).await).await;
    traffic.wait_for_progress(500).await;
    server.pause().await.unwrap();
    // The outcome is unknown after the timeout.
    traffic.wait_for_unknown().await;
    server.resume().await.unwrap();
    traffic.wait_for_progress(500).await;
    traffic.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_lost_before_the_answer_loses_nothing() {
    let Some(server) = shared().await else { return };
    let proxy = Proxy::start(server.address().parse::<std::net::SocketAddr>().unwrap()).await.unwrap();
    for atomic in [true, false] {
        let url = format!("{}?prefix=cut.{atomic}.&{PARAMETERS}&atomic={atomic}", proxy.url(&server.url()));
        let traffic = traffic(&connect(&url).await).await;
        for moment in [CutPoint::BeforeResponse, CutPoint::BeforeForwarding, CutPoint::BeforeResponse] {
            traffic.wait_for_progress(300).await;
            let cuts = |counts: ProxyCounts| counts.cut_before_response + counts.cut_before_forwarding;
            let before = cuts(proxy.counts());
            proxy.cut_next(Trigger::word("Nats-Msg-Id"), moment);
            eventually(SOON, "a connection is cut", async || cuts(proxy.counts()) > before).await;
        }
        traffic.wait_for_progress(300).await;
        traffic.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn publish_without_connection_is_refused_as_unsent() {
    let Some(server) = own().await else { return };
    let broker = connect(&format!("{}?{PARAMETERS}", server.url())).await;
    let batch = [keyed("a", 1), keyed("a", 2)];
    let publisher = broker.publisher();
    // The first publish creates the topic, which may exceed the timeout on a busy machine.
    let accepted = async || publisher.publish(&batch).await.iter().all(Outcome::is_accepted);
    eventually(SOON, "the server accepts the messages", accepted).await;
    server.kill_9().await.unwrap();
    eventually(SOON, "the client notices the lost connection", async || {
        let outcomes = publisher.publish(&batch).await;
        matches!(&outcomes[0], Outcome::Refused(refusal)
            if refusal.code == ErrorCode::UNAVAILABLE && refusal.retriable)
    })
    .await;
}

/// Without a connection the client queues commands, and its queue is bounded.
#[tokio::test(flavor = "multi_thread")]
async fn requests_time_out_during_an_outage_under_load() {
    let Some(server) = own().await else { return };
    let broker = connect(&format!("{}?{PARAMETERS}", server.url())).await;
    server.kill_9().await.unwrap();
    let lost = async || broker.publisher().publish(&[keyed("a", 1)]).await.iter().all(|one| !one.is_accepted());
    eventually(SOON, "the client notices the lost connection", lost).await;
    let requests = join_all((0..3_000).map(|_| broker.topics()));
    let answers = tokio::time::timeout(SOON, requests).await.expect("requests time out without a server");
    assert!(answers.iter().all(|answer| answer.as_ref().is_err_and(landfall_core::Error::is_temporary)));
    let created = tokio::time::timeout(SOON, broker.create_topic(&orders(), None)).await;
    assert!(created.expect("requests time out without a server").is_err_and(|error| error.is_temporary()));

    server.restart().await.unwrap();
    eventually(SOON, "requests succeed after the restart", async || broker.create_topic(&orders(), None).await.is_ok())
        .await;
}
