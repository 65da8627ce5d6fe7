//! A node is killed, paused and disconnected under load. Nothing is lost, duplicated or reordered, and the backlog
//! drains without intervention.

use landfall_core::{Broker, ErrorCode};
use landfall_testkit::eventually;
use landfall_testkit::proxy::{CutPoint, Trigger};
use landfall_testkit::traffic::{keyed, orders, stock};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};

use crate::support::{SOON, exclusive, fresh_prefix, kafka, shared, traffic};

#[tokio::test(flavor = "multi_thread")]
async fn node_killed_and_restarted_under_load_loses_nothing() {
    let Some(server) = exclusive().await else { return };
    let url = server.impatient_url().await;
    let traffic = traffic(&url).await;
    traffic.wait_for_progress(500).await;
    server.kill_9().await.unwrap();
    traffic.wait_for_refusal(ErrorCode::UNAVAILABLE).await;
    server.restart().await.unwrap();
    traffic.wait_for_progress(500).await;
    // And once more, without waiting until a client notices.
    server.restart().await.unwrap();
    traffic.wait_for_progress(500).await;
    traffic.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_paused_past_all_timeouts_loses_nothing() {
    let Some(server) = exclusive().await else { return };
    let url = server.impatient_url().await;
    let traffic = traffic(&url).await;
    traffic.wait_for_progress(500).await;
    server.pause().await.unwrap();
    // First the outcome of sent messages is unknown, then nothing more is sent.
    traffic.wait_for_unknown().await;
    traffic.wait_for_refusal(ErrorCode::UNAVAILABLE).await;
    server.resume().await.unwrap();
    traffic.wait_for_progress(500).await;
    traffic.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_disconnects_lose_and_duplicate_nothing() {
    let Some(server) = shared().await else { return };
    let (proxy, url) = (server.proxy().await, server.impatient_url().await);
    let traffic = traffic(&proxy.url(&url)).await;
    traffic.wait_for_progress(300).await;
    for moment in [CutPoint::BeforeResponse, CutPoint::BeforeForwarding, CutPoint::BeforeResponse] {
        // Every batch contains messages of this key.
        proxy.cut_next(Trigger::word("key-7"), moment);
        traffic.wait_for_progress(300).await;
        proxy.cut_all();
        traffic.wait_for_progress(300).await;
    }
    let counts = proxy.counts();
    assert!(counts.cut_before_response >= 2 && counts.cut_before_forwarding >= 1, "{counts:?}");
    traffic.finish().await;
}

/// A firewall that loses its state leaves a connection open and silent. A member that waits to join sends no heartbeat
/// that could time out.
#[tokio::test(flavor = "multi_thread")]
async fn member_whose_connection_falls_silent_while_it_waits_to_join_joins_soon() {
    let Some(server) = shared().await else { return };
    let (proxy, prefix) = (server.proxy().await, fresh_prefix());
    let url = format!("{}?partitions=1&session_timeout=6s&prefix={prefix}", server.url().await);
    // A static member does not leave its group when it is closed: the next one waits until its session has ended.
    let first = kafka(&format!("{url}&instance=first")).await;
    assert!(first.publisher().publish(&[keyed("a", 1)]).await[0].is_accepted());
    let mut silent = first.subscribe(&orders(), &stock()).await.unwrap();
    let delivery = tokio::time::timeout(SOON, silent.next()).await.expect("the first member joins").unwrap();
    drop(delivery);
    silent.close().await.unwrap();

    let second = kafka(&proxy.url(&url)).await;
    let mut waiting = second.subscribe(&orders(), &stock()).await.unwrap();
    let observer: BaseConsumer = ClientConfig::new().set("bootstrap.servers", server.address()).create().unwrap();
    let group = format!("{prefix}{}", stock());
    let is_waiting = async || {
        let answer = observer.fetch_group_list(Some(&group), SOON).unwrap();
        answer.groups().iter().any(|group| group.state() == "PreparingRebalance" && group.members().len() == 2)
    };
    eventually(SOON, "the second member waits to join", is_waiting).await;
    assert!(proxy.blackhole_all() > 0);
    let delivery = tokio::time::timeout(SOON, waiting.next()).await.expect("the second member joins").unwrap();
    delivery.expect("the message is redelivered").ack().await.unwrap();
}
