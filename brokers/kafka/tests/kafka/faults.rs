//! A node that is killed, paused and cut off under load: nothing is lost, doubled or reordered, and it drains by itself.

use landfall_core::ErrorCode;
use landfall_testkit::proxy::{Moment, Trigger};

use crate::support::{alone, shared, traffic};

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_killed_and_restarted_under_load_loses_nothing() {
    let Some(server) = alone().await else { return };
    let url = server.impatient_url().await;
    let traffic = traffic(&url).await;
    traffic.flows(500).await;
    server.kill_9().await.unwrap();
    traffic.suffers(ErrorCode::UNAVAILABLE).await;
    server.restart().await.unwrap();
    traffic.flows(500).await;
    // And once without waiting for anybody to notice.
    server.restart().await.unwrap();
    traffic.flows(500).await;
    traffic.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_paused_past_all_timeouts_under_load_loses_nothing() {
    let Some(server) = alone().await else { return };
    let url = server.impatient_url().await;
    let traffic = traffic(&url).await;
    traffic.flows(500).await;
    server.pause().await.unwrap();
    // First nobody knows about what was sent, then nothing is sent any more.
    traffic.unknown().await;
    traffic.suffers(ErrorCode::UNAVAILABLE).await;
    server.resume().await.unwrap();
    traffic.flows(500).await;
    traffic.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_cut_again_and_again_lose_and_double_nothing() {
    let Some(server) = shared().await else { return };
    let (proxy, url) = (server.proxy().await, server.impatient_url().await);
    let traffic = traffic(&proxy.url(&url)).await;
    traffic.flows(300).await;
    for moment in [Moment::BeforeTheAnswer, Moment::BeforeForwarding, Moment::BeforeTheAnswer] {
        // Every batch has messages of this key in it.
        proxy.cut_next(Trigger::word("key-7"), moment);
        traffic.flows(300).await;
        proxy.cut_all();
        traffic.flows(300).await;
    }
    let counts = proxy.counts();
    assert!(counts.cut_before_the_answer >= 2 && counts.cut_before_forwarding >= 1, "{counts:?}");
    traffic.finish().await;
}
