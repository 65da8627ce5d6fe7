//! A node is killed, paused and disconnected under load. Nothing is lost, duplicated or reordered, and the backlog
//! drains without intervention.

use landfall_core::ErrorCode;
use landfall_testkit::proxy::{CutPoint, Trigger};

use crate::support::{exclusive, shared, traffic};

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
