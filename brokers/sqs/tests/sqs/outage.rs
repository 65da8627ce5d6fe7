//! The server dies, or does not answer, under load.

use crate::support::{connect, own, traffic};

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_or_doubled_when_the_server_is_killed_under_load() {
    let Some(server) = own().await else { return };
    let traffic = traffic(&connect(&server.endpoint()).await).await;
    for _ in 0..2 {
        traffic.flows(100).await;
        server.kill_9().await.unwrap();
        server.restart().await.unwrap();
    }
    traffic.flows(100).await;
    let report = traffic.drain().await;
    // Not the order: this server does not know it any more.
    assert!(report.lost.is_empty() && report.doubled.is_empty() && report.phantom.is_empty(), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_answer_for_a_while_costs_time_and_nothing_else() {
    let Some(server) = own().await else { return };
    let traffic = traffic(&connect(&server.endpoint()).await).await;
    traffic.flows(100).await;
    server.pause().await.unwrap();
    // A send is past its timeout, and one after it.
    traffic.unknown().await;
    traffic.fails(1).await;
    server.resume().await.unwrap();
    traffic.flows(100).await;
    traffic.finish().await;
}
