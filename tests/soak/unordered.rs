//! Relays that compete for single messages, in the same trouble: nothing lost, nothing made up, nothing doubled (L1–L3,
//! L9). Order is nothing they promise.

use std::time::Duration;

use landfall_system_tests::soak::{DatabaseKind, Figures, Focus, Options, Order, SoakPlant};

use crate::{SOAK, alone, seed, soak};

/// Short of a minute: the writers, the consumer and the faults are those of the minute in order.
const A_WHILE: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_doubled_without_order_on_postgresql() {
    let Some(figures) = without_order(DatabaseKind::Postgres).await else { return };
    assert_trouble(&figures);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_doubled_without_order_on_mariadb() {
    let Some(figures) = without_order(DatabaseKind::Mysql).await else { return };
    assert_trouble(&figures);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_drops_what_failed_is_found_to_lose_it() {
    let _alone = alone().await;
    let mut options = Options::new(DatabaseKind::Postgres, Duration::from_secs(6), 66, SOAK);
    (options.order, options.plant, options.focus) = (Order::None, Some(SoakPlant::SettleWhatFailed), Focus::Broker);
    // It will come to that.
    options.standstill = Duration::from_secs(3);
    let Some(figures) = soak(&options).await else { return };
    assert!(!figures.is_clean() && figures.lost > 0, "{figures}");
}

async fn without_order(database: DatabaseKind) -> Option<Figures> {
    let _alone = alone().await;
    let mut options = Options::new(database, A_WHILE, seed(), SOAK);
    options.order = Order::None;
    let figures = soak(&options).await?;
    assert!(figures.is_clean(), "{figures}");
    Some(figures)
}

/// A run in which nothing happened would prove nothing. No shard changes hands, since nobody holds one.
fn assert_trouble(figures: &Figures) {
    assert!(figures.messages > 100 && figures.rolled_back > 0, "{figures}");
    assert!(figures.blows.kills > 0 && figures.blows.pauses > 0, "{figures}");
    assert!(figures.cuts + figures.commits_cut_before + figures.commits_cut_after > 0, "{figures}");
    assert_eq!(figures.takeovers, 0, "{figures}");
}
