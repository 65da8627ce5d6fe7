//! The server dies, or does not answer, under load.

use landfall_testkit::servers::ElasticMq;
use landfall_testkit::{current_test, eventually};

use crate::load::{Load, SOON, connect};

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_or_doubled_when_the_server_is_killed_under_load() {
    let Some(server) = ElasticMq::start(&current_test()).await else { return };
    let sqs = connect(&server.endpoint()).await;
    let load = Load::start(&sqs, 40).await;
    for part in [5, 3] {
        load.until(load.total / part).await;
        server.kill_9().await.unwrap();
        server.restart().await.unwrap();
    }
    let report = load.drained().await;
    // Not the order: this server does not know it any more.
    assert!(report.lost.is_empty() && report.doubled.is_empty() && report.phantom.is_empty(), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_answer_for_a_while_costs_time_and_nothing_else() {
    let Some(server) = ElasticMq::start(&current_test()).await else { return };
    let sqs = connect(&server.endpoint()).await;
    let load = Load::start(&sqs, 40).await;
    load.until(load.total / 5).await;
    server.pause().await.unwrap();
    eventually(SOON, "a send is past its timeout, and one after it", async || load.account.unknown() > 10).await;
    server.resume().await.unwrap();
    load.drained().await.assert_clean();
}
