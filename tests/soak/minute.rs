//! A minute of all faults: nothing lost, nothing invented, nothing duplicated, nothing out of order (L1–L4, L7, L9).

use std::time::Duration;

use landfall_system_tests::soak::test_run::{alone, seed, soak};
use landfall_system_tests::soak::{DatabaseKind, Figures, Options};
use landfall_testkit::assert_no_violation;

use crate::SOAK;

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn soak_is_clean_after_a_minute_on_sqlite() {
    let Some(figures) = soak_a_minute(DatabaseKind::Sqlite).await else { return };
    assert_faults_injected(&figures);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn soak_is_clean_after_a_minute_on_postgresql() {
    let Some(figures) = soak_a_minute(DatabaseKind::Postgres).await else { return };
    assert_faults_injected(&figures);
    assert_server_faults_injected(&figures);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn soak_is_clean_after_a_minute_on_mariadb() {
    let Some(figures) = soak_a_minute(DatabaseKind::Mysql).await else { return };
    assert_faults_injected(&figures);
    assert_server_faults_injected(&figures);
}

async fn soak_a_minute(database: DatabaseKind) -> Option<Figures> {
    let _alone = alone().await;
    let figures = soak(&Options::new(database, MINUTE, seed(), SOAK).with_every_fault()).await?;
    assert_no_violation(figures.is_clean(), &figures);
    Some(figures)
}

/// A run without faults would prove nothing.
fn assert_faults_injected(figures: &Figures) {
    assert!(figures.messages > 500 && figures.rolled_back > 0, "{figures}");
    assert!(figures.faults.relay_kills > 0 && figures.faults.lease_pauses > 0, "{figures}");
    assert!(figures.takeovers > 0 && figures.redriven > 0, "{figures}");
}

fn assert_server_faults_injected(figures: &Figures) {
    assert!(figures.faults.restarts > 0 && figures.cuts > 0, "{figures}");
    assert!(figures.unknown_committed > 0 && figures.unknown > figures.unknown_committed, "{figures}");
}
