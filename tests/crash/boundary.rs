//! Every boundary that a message crosses, hit on purpose (L1–L4).
//!
//! For each: a worker with all roles dies there the first time it comes by; the next one gets a little further before
//! it dies at the same place, and so does a third. Then a last one drains what they left. Nothing may be lost,
//! doubled, out of order, or there without having been committed, and each key's effects are exactly 1, 2, 3…

use landfall::postgres::Postgres;
use landfall::sqlite::Sqlite;
use landfall_system_tests::{Adapter, BOUNDARIES, Failpoint, World};

use crate::WORLD;

/// At which time of coming by it dies: at once, in the middle of a burst, and when it has been at work for a while.
const HITS: [u32; 3] = [1, 5, 17];

async fn die_again_and_again<D: Adapter>(mut world: World<D>, boundary: &str) {
    assert!(BOUNDARIES.contains(&boundary));
    for hit in HITS {
        world.die_at(Failpoint::kill(boundary, hit)).await;
    }
    world.drain().await;
    world.judge().await.assert_nothing_is_wrong();
}

macro_rules! killed {
    ($($moment:ident: $boundary:literal),* $(,)?) => {
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
