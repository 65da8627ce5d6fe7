//! The whole path must be able to fail: with a bug planted in its consumers, the check names the violated promise.

use std::time::Duration;

use landfall_system_tests::soak::test_run::{alone, soak};
use landfall_system_tests::soak::{BrokerKind, DatabaseKind, Figures, Focus, Options, SoakBug};

use crate::SOAK;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumer_without_inbox_is_detected_over_redis() {
    planted(BrokerKind::Redis, SoakBug::SkipInbox, 81, |figures| figures.doubled > 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn early_acknowledgement_is_detected_over_nats() {
    planted(BrokerKind::Nats, SoakBug::AcknowledgeEarly, 82, |figures| figures.lost > 0).await;
}

/// Kills consumers for some seconds. Repeats with another seed until the bug shows.
async fn planted(broker: BrokerKind, planted_bug: SoakBug, seed: u64, is_found: impl Fn(&Figures) -> bool) {
    let _alone = alone().await;
    let mut seen = String::new();
    for round in 0..5 {
        let options = Options::new(DatabaseKind::Postgres, Duration::from_secs(8), seed + 100 * round, SOAK);
        let mut options = options.over(broker);
        (options.planted_bug, options.focus) = (Some(planted_bug), Focus::Consumers);
        // The drain stalls on lost messages. It must outlast the session of a killed consumer.
        options.stall_timeout = Duration::from_secs(15);
        let Some(figures) = soak(&options).await else { return };
        if is_found(&figures) {
            return assert!(!figures.is_clean(), "{figures}");
        }
        seen = figures.to_string();
    }
    panic!("not detected in five rounds; the last one: {seen}");
}
