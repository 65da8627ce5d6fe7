//! The server is killed or paused under load.

use crate::support::{connect, own, traffic};

#[tokio::test(flavor = "multi_thread")]
async fn server_killed_under_load_loses_and_duplicates_nothing() {
    let Some(server) = own().await else { return };
    let traffic = traffic(&connect(&server.endpoint()).await).await;
    for _ in 0..2 {
        traffic.wait_for_progress(100).await;
        server.kill_9().await.unwrap();
        server.restart().await.unwrap();
    }
    traffic.wait_for_progress(100).await;
    let report = traffic.drain().await;
    // Order is not checked: ElasticMQ does not persist it.
    assert!(report.lost.is_empty() && report.doubled.is_empty() && report.phantom.is_empty(), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn server_paused_past_every_timeout_loses_nothing() {
    let Some(server) = own().await else { return };
    let traffic = traffic(&connect(&server.endpoint()).await).await;
    traffic.wait_for_progress(100).await;
    server.pause().await.unwrap();
    // One send times out, and another fails after it.
    traffic.wait_for_unknown().await;
    traffic.wait_for_failed_batches(1).await;
    server.resume().await.unwrap();
    traffic.wait_for_progress(100).await;
    traffic.finish().await;
}
