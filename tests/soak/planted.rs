//! The soak must be able to fail: with a bug planted in its processes, it names the violated promise.

use std::time::Duration;

use landfall_system_tests::soak::test_run::{alone, soak};
use landfall_system_tests::soak::{DatabaseKind, Figures, Focus, Options, SoakBug};

use crate::SOAK;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relay_that_ignores_its_epoch_is_detected() {
    planted(SoakBug::OneEpochForAll, Focus::Relays, 61, |figures| figures.shared_epochs > 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settlement_that_drops_a_row_is_detected_as_loss() {
    planted(SoakBug::SettleWhatFailed, Focus::Broker, 62, |figures| figures.lost > 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relays_that_share_a_key_are_detected_as_reordering() {
    planted(SoakBug::SplitRows, Focus::Relays, 63, |figures| figures.out_of_order > 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relay_with_a_cursor_is_detected_as_losing_late_commits() {
    planted(SoakBug::RememberPosition, Focus::Commits, 65, |figures| figures.lost > 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blind_commit_retry_is_detected_as_duplicate_effect() {
    planted(SoakBug::RetryBlindly, Focus::Commits, 64, |figures| figures.doubled > 0).await;
}

/// Runs a few seconds of the faults that expose the bug. Repeats with another seed until it shows.
async fn planted(planted_bug: SoakBug, focus: Focus, seed: u64, is_found: impl Fn(&Figures) -> bool) {
    let _alone = alone().await;
    let mut seen = String::new();
    for round in 0..10 {
        let mut options = Options::new(DatabaseKind::Postgres, Duration::from_secs(6), seed + 100 * round, SOAK);
        (options.planted_bug, options.focus) = (Some(planted_bug), focus);
        // Lost messages make the drain stall.
        options.stall_timeout = Duration::from_secs(3);
        let Some(figures) = soak(&options).await else { return };
        if is_found(&figures) {
            return assert!(!figures.is_clean(), "{figures}");
        }
        seen = figures.to_string();
    }
    panic!("not detected in ten rounds; the last one: {seen}");
}
