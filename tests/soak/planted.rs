//! The soak must be able to fail: with a bug planted in its processes it names what is broken.

use std::time::Duration;

use landfall_system_tests::soak::{DatabaseKind, Figures, Focus, Options, SoakPlant};

use crate::{SOAK, alone, soak};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_ignores_its_epoch_is_found() {
    let Some(figures) = planted(SoakPlant::OneEpochForAll, Focus::Relays, 61).await else { return };
    assert!(figures.shared_epochs > 0, "{figures}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settlement_that_drops_a_row_is_found_to_lose_it() {
    let Some(figures) = planted(SoakPlant::SettleWhatFailed, Focus::Broker, 62).await else { return };
    assert!(figures.lost > 0, "{figures}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relays_that_share_the_rows_of_a_key_are_found_to_reorder() {
    let Some(figures) = planted(SoakPlant::SplitRows, Focus::Relays, 63).await else { return };
    assert!(figures.out_of_order > 0, "{figures}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_remembers_a_position_is_found_to_lose_what_commits_late() {
    let Some(figures) = planted(SoakPlant::RememberPosition, Focus::Commits, 65).await else { return };
    assert!(figures.lost > 0, "{figures}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_is_tried_again_without_looking_is_found_to_double_effects() {
    let Some(figures) = planted(SoakPlant::RetryBlindly, Focus::Commits, 64).await else { return };
    assert!(figures.doubled > 0, "{figures}");
}

/// A few seconds of the trouble that brings the bug out, and of nothing else.
async fn planted(plant: SoakPlant, focus: Focus, seed: u64) -> Option<Figures> {
    let _alone = alone().await;
    let mut options = Options::new(DatabaseKind::Postgres, Duration::from_secs(6), seed, SOAK);
    (options.plant, options.focus) = (Some(plant), focus);
    // It will come to that.
    options.standstill = Duration::from_secs(3);
    let figures = soak(&options).await?;
    assert!(!figures.is_clean(), "{figures}");
    Some(figures)
}
