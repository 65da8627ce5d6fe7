//! Relays that compete for single messages, under the same faults: nothing lost, nothing invented, nothing duplicated
//! (L1–L3, L9). They do not promise order.

use std::time::Duration;

use landfall_system_tests::soak::test_run::{alone, seed, soak};
use landfall_system_tests::soak::{DatabaseKind, Figures, Focus, Options, Order, SoakBug};
use landfall_testkit::assert_no_violation;

use crate::SOAK;

/// Less than a minute: writers, consumer and faults are those of the ordered soak.
const DURATION: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unordered_soak_is_clean_on_postgresql() {
    let Some(figures) = without_order(DatabaseKind::Postgres).await else { return };
    assert_faults_injected(&figures);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unordered_soak_is_clean_on_mariadb() {
    let Some(figures) = without_order(DatabaseKind::Mysql).await else { return };
    assert_faults_injected(&figures);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claim_that_drops_failed_messages_is_detected_as_loss() {
    let _alone = alone().await;
    let mut options = Options::new(DatabaseKind::Postgres, Duration::from_secs(6), 66, SOAK);
    (options.order, options.planted_bug, options.focus) = (Order::None, Some(SoakBug::SettleWhatFailed), Focus::Broker);
    // The lost messages never arrive, so the drain will stall.
    options.stall_timeout = Duration::from_secs(3);
    let Some(figures) = soak(&options).await else { return };
    assert!(!figures.is_clean() && figures.lost > 0, "{figures}");
}

async fn without_order(database: DatabaseKind) -> Option<Figures> {
    let _alone = alone().await;
    let mut options = Options::new(database, DURATION, seed(), SOAK);
    options.order = Order::None;
    let figures = soak(&options).await?;
    assert_no_violation(figures.is_clean(), &figures);
    Some(figures)
}

/// A run without faults would prove nothing. There are no takeovers, because no relay holds a shard.
fn assert_faults_injected(figures: &Figures) {
    assert!(figures.messages > 100 && figures.rolled_back > 0, "{figures}");
    assert!(figures.faults.kills > 0 && figures.faults.pauses > 0, "{figures}");
    assert!(figures.cuts + figures.commits_cut_before + figures.commits_cut_after > 0, "{figures}");
    assert_eq!(figures.takeovers, 0, "{figures}");
}
