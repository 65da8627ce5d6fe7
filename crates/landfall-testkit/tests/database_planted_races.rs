//! The cases that need several writers at once have teeth too.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod planted_postgres;

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use landfall_testkit::conformance::database::{
    Stage, outbox_fencing, outbox_late_commit, outbox_order, outbox_takeover, run,
};
use planted_postgres::{IGNORES_THE_EPOCH, NOTHING, Planted, SKIPS_LATE_COMMITS};

/// Whether `case` fails on a database with the bug. Without a server no case fails, and `not_run` has said so.
async fn fails<const BUG: usize>(case: impl AsyncFnOnce(Stage<Planted<BUG>>)) -> bool {
    AssertUnwindSafe(run::<Planted<BUG>, _>(case)).catch_unwind().await.is_err()
}

/// Whether one of ten runs fails on the bug: in some cases it is chance whether writers and readers meet at the moment
/// that it takes.
async fn caught<const BUG: usize>(case: impl AsyncFn(Stage<Planted<BUG>>)) -> bool {
    for _ in 0..10 {
        if fails(&case).await {
            return true;
        }
    }
    false
}

async fn has_server() -> bool {
    landfall_testkit::servers::fresh_postgres_database().await.is_some()
}

/// Each line is a test: a bug, and the cases that must fail on it, and that must pass without it.
macro_rules! caught {
    ($($test:ident: $bug:ident by $($group:ident::$case:ident),+;)+) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $test() {
            if !has_server().await {
                return;
            }
            $(
                assert!(!fails::<NOTHING>($group::$case).await, "{} fails without the bug", stringify!($case));
                assert!(caught::<$bug>(async |stage| $group::$case(stage).await).await, "{} misses the bug", stringify!($case));
            )+
        }
    )+};
}

caught! {
    a_database_that_skips_late_commits_is_caught: SKIPS_LATE_COMMITS by
        outbox_late_commit::a_row_that_commits_after_its_successor_is_published_after_it,
        outbox_late_commit::concurrent_writers_lose_nothing_and_reorder_nothing,
        outbox_order::a_transaction_that_commits_late_is_not_lost;
    a_database_that_ignores_the_epoch_is_caught: IGNORES_THE_EPOCH by
        outbox_takeover::a_settlement_waits_for_a_takeover_in_flight_and_then_changes_nothing,
        outbox_fencing::a_stale_epoch_changes_nothing;
}
