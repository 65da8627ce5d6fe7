//! A minute of faults: nothing lost, nothing invented, nothing duplicated, nothing out of order (L1–L4, L9).

use std::time::Duration;

use landfall_system_tests::soak::test_run::{alone, seed, soak};
use landfall_system_tests::soak::{BrokerKind, DatabaseKind, Figures, Options};
use landfall_testkit::assert_no_violation;

use crate::SOAK;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whole_path_is_clean_over_kafka() {
    clean_after_a_minute(BrokerKind::Kafka).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whole_path_is_clean_over_rabbitmq() {
    clean_after_a_minute(BrokerKind::RabbitMq).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whole_path_is_clean_over_nats() {
    clean_after_a_minute(BrokerKind::Nats).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whole_path_is_clean_over_redis() {
    clean_after_a_minute(BrokerKind::Redis).await;
}

async fn clean_after_a_minute(broker: BrokerKind) {
    let _alone = alone().await;
    let options = Options::new(DatabaseKind::Postgres, Duration::from_secs(60), seed(), SOAK);
    let options = options.over(broker).with_every_fault();
    let Some(figures) = soak(&options).await else { return };
    assert_no_violation(figures.is_clean(), &figures);
    assert_faults_injected(&figures);
}

/// A run without faults would prove nothing.
fn assert_faults_injected(figures: &Figures) {
    let faults = figures.faults;
    assert!(figures.messages > 300 && figures.rolled_back > 0, "{figures}");
    assert!(faults.relay_kills > 0 && faults.lease_pauses > 0 && faults.consumer_kills > 0, "{figures}");
    assert!(faults.broker_restarts > 0 && faults.broker_pauses > 0 && figures.broker_cuts > 0, "{figures}");
    assert!(faults.broker_blackholes > 0, "{figures}");
    let cuts = figures.cuts + figures.commits_cut_before + figures.commits_cut_after;
    assert!(faults.restarts > 0 && cuts > 0, "{figures}");
    assert!(figures.takeovers > 0 && figures.redriven > 0, "{figures}");
}
