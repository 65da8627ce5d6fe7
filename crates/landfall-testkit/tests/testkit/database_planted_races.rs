//! Mutation tests of the database cases that need concurrent writers.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use landfall_testkit::conformance::database::{
    Harness, outbox_fencing, outbox_late_commit, outbox_order, outbox_takeover, run,
};

use crate::planted_postgres::{IGNORES_THE_EPOCH, NOTHING, Planted, SKIPS_LATE_COMMITS};

/// Whether `case` fails on a database with the bug. Without a server no case fails, and `not_run` reports it.
async fn fails<const BUG: usize>(case: impl AsyncFnOnce(Harness<Planted<BUG>>)) -> bool {
    AssertUnwindSafe(run::<Planted<BUG>, _>(case)).catch_unwind().await.is_err()
}

/// Whether one of ten runs detects the bug: some races need writers and readers to meet by chance.
async fn detects<const BUG: usize>(case: impl AsyncFn(Harness<Planted<BUG>>)) -> bool {
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

/// Generates one test per line: a bug, and the cases that must fail with it and pass without it.
macro_rules! detected {
    ($($test:ident: $bug:ident by $($group:ident::$case:ident),+;)+) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $test() {
            if !has_server().await {
                return;
            }
            $(
                let case = stringify!($case);
                assert!(!fails::<NOTHING>($group::$case).await, "{case} fails without the bug");
                let is_detected = detects::<$bug>(async |harness| $group::$case(harness).await).await;
                assert!(is_detected, "{case} misses the bug");
            )+
        }
    )+};
}

detected! {
    skipped_late_commit_is_detected: SKIPS_LATE_COMMITS by
        outbox_late_commit::lower_id_that_commits_later_is_still_published,
        outbox_late_commit::concurrent_writers_lose_and_reorder_nothing,
        outbox_order::late_commit_is_not_skipped;
    ignored_epoch_is_detected: IGNORES_THE_EPOCH by
        outbox_takeover::settle_waits_for_an_open_takeover_and_changes_nothing,
        outbox_fencing::stale_epoch_settles_nothing;
}
