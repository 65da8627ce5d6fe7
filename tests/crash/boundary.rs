//! Kills at every boundary that a message crosses (L1–L4).
//!
//! For each boundary, a worker with all roles is killed the first time it reaches it. The next ones get further before
//! they are killed at the same boundary. A last worker drains what they left. Nothing may be lost, duplicated,
//! reordered or published without a commit, and each key's effects must be exactly 1, 2, 3…

use std::collections::BTreeSet;
use std::path::Path;

use landfall::mysql::MySql;
use landfall::postgres::Postgres;
use landfall::sqlite::Sqlite;
use landfall_system_tests::{Adapter, Failpoint, Harness};

use crate::WORKER;

/// The hit at which the worker is killed: at once, within a burst, and after some time of work.
const HITS: [u32; 3] = [1, 5, 17];

async fn kill_repeatedly_at<D: Adapter>(mut harness: Harness<D>, boundary: &str) {
    for hit in HITS {
        harness.run_until_killed_at(Failpoint::kill(boundary, hit)).await;
    }
    harness.drain().await;
    harness.check().await.assert_clean();
}

macro_rules! killed {
    ($($moment:ident: $boundary:literal),* $(,)?) => {
        /// The boundaries at which the default service is killed.
        const BOUNDARIES: &[&str] = &[$($boundary),*];

        mod killed_on_sqlite {
            $(#[tokio::test]
            async fn $moment() {
                let harness = super::Harness::<super::Sqlite>::sqlite(super::WORKER, 1).await;
                super::kill_repeatedly_at(harness, $boundary).await;
            })*
        }

        mod killed_on_postgresql {
            $(#[tokio::test]
            async fn $moment() {
                let Some(harness) = super::Harness::<super::Postgres>::postgres(super::WORKER, 2).await else { return };
                super::kill_repeatedly_at(harness, $boundary).await;
            })*
        }

        mod killed_on_mariadb {
            $(#[tokio::test]
            async fn $moment() {
                let Some(harness) = super::Harness::<super::MySql>::mysql(super::WORKER, 3).await else { return };
                super::kill_repeatedly_at(harness, $boundary).await;
            })*
        }
    };
}

killed! {
    before_the_commit_of_order_and_message: "produce.before-commit",
    after_the_commit_before_the_relay_is_woken: "produce.after-commit",
    after_the_relay_has_claimed: "relay.after-claim",
    after_publishing_before_settling: "relay.after-publish",
    after_settling: "relay.after-settle",
    after_the_handler_before_the_commit: "consume.after-handler",
    after_the_commit_before_the_acknowledgement: "consume.after-commit",
    before_the_commit_of_a_redriven_effect: "redrive.before-commit",
}

/// A new failpoint in the library needs a line above.
#[test]
fn every_failpoint_of_the_library_is_tested() {
    let mut found = BTreeSet::new();
    // The failpoint of `import` has its own test.
    collect_failpoints(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/landfall/src"), &mut found);
    found.retain(|name| !name.starts_with("import."));
    let hit = BOUNDARIES
        .iter()
        .chain(crate::strategy::BOUNDARIES)
        .chain(crate::half::BOUNDARIES)
        .chain([&crate::half::ARCHIVED])
        .chain(crate::idempotent::BOUNDARIES)
        .map(|name| (*name).to_owned());
    assert_eq!(found, hit.collect());
}

fn collect_failpoints(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_failpoints(&path, found);
            continue;
        }
        let text = std::fs::read_to_string(path).unwrap();
        let points = text.split("fail_point!(\"").skip(1).filter_map(|rest| rest.split_once('"'));
        found.extend(points.map(|(name, _)| name.to_owned()));
    }
}
