//! Every boundary that a message crosses, hit on purpose (L1–L4).
//!
//! For each: a worker with all roles dies there the first time it comes by; the next one gets a little further before
//! it dies at the same place, and so does a third. Then a last one drains what they left. Nothing may be lost,
//! doubled, out of order, or there without having been committed, and each key's effects are exactly 1, 2, 3…

use std::collections::BTreeSet;
use std::path::Path;

use landfall::mysql::MySql;
use landfall::postgres::Postgres;
use landfall::sqlite::Sqlite;
use landfall_system_tests::{Adapter, Failpoint, World};

use crate::WORLD;

/// At which time of coming by it dies: at once, in the middle of a burst, and when it has been at work for a while.
const HITS: [u32; 3] = [1, 5, 17];

async fn die_again_and_again<D: Adapter>(mut world: World<D>, boundary: &str) {
    for hit in HITS {
        world.die_at(Failpoint::kill(boundary, hit)).await;
    }
    world.drain().await;
    world.judge().await.assert_nothing_is_wrong();
}

macro_rules! killed {
    ($($moment:ident: $boundary:literal),* $(,)?) => {
        /// Those at which the usual service dies.
        const BOUNDARIES: &[&str] = &[$($boundary),*];

        mod killed_on_sqlite {
            $(#[tokio::test]
            async fn $moment() {
                let world = super::World::<super::Sqlite>::sqlite(super::WORLD, 1).await;
                super::die_again_and_again(world, $boundary).await;
            })*
        }

        mod killed_on_postgresql {
            $(#[tokio::test]
            async fn $moment() {
                let Some(world) = super::World::<super::Postgres>::postgres(super::WORLD, 2).await else { return };
                super::die_again_and_again(world, $boundary).await;
            })*
        }

        mod killed_on_mariadb {
            $(#[tokio::test]
            async fn $moment() {
                let Some(world) = super::World::<super::MySql>::mysql(super::WORLD, 3).await else { return };
                super::die_again_and_again(world, $boundary).await;
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

/// A crash point that is added to the steps needs a line above.
#[test]
fn every_crash_point_of_the_steps_is_hit() {
    let steps = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/landfall/src");
    let mut found = BTreeSet::new();
    for step in ["produce", "relay", "consume"] {
        for file in std::fs::read_dir(steps.join(step)).unwrap() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            let points = text.split("fail_point!(\"").skip(1).filter_map(|rest| rest.split_once('"'));
            found.extend(points.map(|(name, _)| name.to_owned()));
        }
    }
    let hit = BOUNDARIES.iter().chain(crate::strategy::BOUNDARIES).map(|name| (*name).to_owned());
    assert_eq!(found, hit.collect());
}
