//! Every way to be idempotent, and every place where a message waits for its next try, killed around the handler, the
//! commit and the acknowledgement (L3): each effect happens once, and per key in order.

use landfall::mysql::MySql;
use landfall::postgres::Postgres;
use landfall::sqlite::Sqlite;
use landfall_system_tests::{Adapter, Failpoint, Service, World};
use landfall_testkit::current_test;
use landfall_testkit::servers::RedisServer;

use crate::WORLD;

/// Before and after the handler, after the commit, after the acknowledgement.
const AROUND: [&str; 4] =
    ["consume.before-handler", "consume.after-handler", "consume.after-commit", "consume.after-ack"];
/// On the way into the table and out of it.
const DELAYED: [&str; 4] =
    ["consume.before-park", "consume.after-commit", "redrive.before-park", "redrive.before-commit"];
/// On the way into the topic and out of it.
const MOVED: [&str; 3] = ["lane.after-publish", "consume.after-handler", "consume.after-commit"];

/// Those that are reached here and by no usual service, or not for certain.
pub(crate) const BOUNDARIES: &[&str] = &[
    "consume.before-handler",
    "consume.after-ack",
    "consume.before-park",
    "redrive.before-park",
    "lane.after-publish",
];

/// Dies at each of `boundaries`, at once or when it has been at work for a moment.
async fn die_at_each<D: Adapter>(world: &mut World<D>, service: Service, boundaries: &[&str]) {
    world.setup.service = service;
    for (boundary, hit) in boundaries.iter().zip([3, 5, 9, 2]) {
        world.die_at(Failpoint::kill(boundary, hit)).await;
    }
    world.drain().await;
}

async fn once_and_in_order<D: Adapter>(mut world: World<D>, service: Service, boundaries: &[&str]) {
    die_at_each(&mut world, service, boundaries).await;
    world.judge().await.assert_nothing_is_wrong();
}

async fn once<D: Adapter>(mut world: World<D>, service: Service, boundaries: &[&str]) {
    die_at_each(&mut world, service, boundaries).await;
    world.judge().await.assert_nothing_but_the_order_is_wrong();
}

/// Redis forgets everything between two lives.
async fn behind_redis<D: Adapter>(mut world: World<D>) {
    let Some(redis) = RedisServer::start(&current_test()).await else { return };
    world.setup.service = Service::BehindRedis(redis.url());
    for (boundary, hit) in AROUND.iter().zip([3, 5, 9, 2]) {
        world.die_at(Failpoint::kill(boundary, hit)).await;
        redis.flush().await.unwrap();
    }
    world.drain().await;
    world.judge().await.assert_nothing_is_wrong();
}

macro_rules! killed {
    ($($test:ident: $judge:ident($service:ident, $boundaries:ident)),* $(,)?) => {
        killed!(@on on_sqlite, super::World::<super::Sqlite>::sqlite(super::WORLD, 21).await,
            $($test: $judge($service, $boundaries)),*);
        killed!(@on on_postgresql, match super::World::<super::Postgres>::postgres(super::WORLD, 22).await {
            Some(world) => world,
            None => return,
        }, $($test: $judge($service, $boundaries)),*);
        killed!(@on on_mariadb, match super::World::<super::MySql>::mysql(super::WORLD, 23).await {
            Some(world) => world,
            None => return,
        }, $($test: $judge($service, $boundaries)),*);
    };
    (@on $database:ident, $world:expr, $($test:ident: $judge:ident($service:ident, $boundaries:ident)),*) => {
        mod $database {
            $(#[tokio::test]
            async fn $test() {
                super::$judge($world, super::Service::$service, &super::$boundaries).await;
            })*

            #[tokio::test]
            async fn redis_in_front_that_is_flushed() {
                super::behind_redis($world).await;
            }
        }
    };
}

killed! {
    the_inbox_one_by_one: once_and_in_order(OneByOne, AROUND),
    the_inbox_in_batches: once_and_in_order(Batches, AROUND),
    the_inbox_with_a_set_based_handler: once_and_in_order(SetBased, AROUND),
    a_unique_constraint: once_and_in_order(UniqueConstraint, AROUND),
    an_upsert: once_and_in_order(Upsert, AROUND),
    a_conditional_update: once_and_in_order(ConditionalUpdate, AROUND),
    a_guard_row: once_and_in_order(GuardRow, AROUND),
    a_version: once_and_in_order(Version, AROUND),
    delayed_in_the_database: once_and_in_order(DelayedInTheDatabase, DELAYED),
    delayed_in_a_topic: once(DelayedInATopic, MOVED),
}
