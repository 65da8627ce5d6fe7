//! Every idempotency strategy and every retry lane, killed around the handler, the commit and the acknowledgement (L3).
//! Each effect happens once, and per key in order.

use landfall::mysql::MySql;
use landfall::postgres::Postgres;
use landfall::sqlite::Sqlite;
use landfall_system_tests::{Adapter, Failpoint, Harness, Service};
use landfall_testkit::current_test;
use landfall_testkit::servers::RedisServer;

use crate::WORKER;

/// Before and after the handler, after the commit, after the acknowledgement.
const AROUND: [&str; 4] =
    ["consume.before-handler", "consume.after-handler", "consume.after-commit", "consume.after-ack"];
/// On the way into the database's retry lane and out of it.
const DELAYED: [&str; 4] =
    ["consume.before-park", "consume.after-commit", "redrive.before-park", "redrive.before-commit"];
/// On the way into the retry topic and out of it.
const MOVED: [&str; 3] = ["lane.after-publish", "consume.after-handler", "consume.after-commit"];

/// The boundaries that the default service does not reach, or not reliably.
pub(crate) const BOUNDARIES: &[&str] = &[
    "consume.before-handler",
    "consume.after-ack",
    "consume.before-park",
    "redrive.before-park",
    "lane.after-publish",
];

/// Kills workers at each of `boundaries`, after a few hits.
async fn kill_at_each<D: Adapter>(harness: &mut Harness<D>, service: Service, boundaries: &[&str]) {
    harness.setup.service = service;
    for (boundary, hit) in boundaries.iter().zip([3, 5, 9, 2]) {
        harness.run_until_killed_at(Failpoint::kill(boundary, hit)).await;
    }
    harness.drain().await;
}

async fn once_and_in_order<D: Adapter>(mut harness: Harness<D>, service: Service, boundaries: &[&str]) {
    kill_at_each(&mut harness, service, boundaries).await;
    harness.check().await.assert_clean();
}

async fn once<D: Adapter>(mut harness: Harness<D>, service: Service, boundaries: &[&str]) {
    kill_at_each(&mut harness, service, boundaries).await;
    harness.check().await.assert_clean_except_order();
}

/// Redis is flushed between two workers.
async fn behind_redis<D: Adapter>(mut harness: Harness<D>) {
    let Some(redis) = RedisServer::start(&current_test()).await else { return };
    harness.setup.service = Service::BehindRedis(redis.url());
    for (boundary, hit) in AROUND.iter().zip([3, 5, 9, 2]) {
        harness.run_until_killed_at(Failpoint::kill(boundary, hit)).await;
        redis.flush().await.unwrap();
    }
    harness.drain().await;
    harness.check().await.assert_clean();
}

macro_rules! killed {
    ($($test:ident: $check:ident($service:ident, $boundaries:ident)),* $(,)?) => {
        killed!(@on on_sqlite, super::Harness::<super::Sqlite>::sqlite(super::WORKER, 21).await,
            $($test: $check($service, $boundaries)),*);
        killed!(@on on_postgresql, match super::Harness::<super::Postgres>::postgres(super::WORKER, 22).await {
            Some(harness) => harness,
            None => return,
        }, $($test: $check($service, $boundaries)),*);
        killed!(@on on_mariadb, match super::Harness::<super::MySql>::mysql(super::WORKER, 23).await {
            Some(harness) => harness,
            None => return,
        }, $($test: $check($service, $boundaries)),*);
    };
    (@on $database:ident, $harness:expr, $($test:ident: $check:ident($service:ident, $boundaries:ident)),*) => {
        mod $database {
            $(#[tokio::test]
            async fn $test() {
                super::$check($harness, super::Service::$service, &super::$boundaries).await;
            })*

            #[tokio::test]
            async fn redis_cache_that_is_flushed() {
                super::behind_redis($harness).await;
            }
        }
    };
}

killed! {
    inbox_one_by_one: once_and_in_order(OneByOne, AROUND),
    inbox_in_batches: once_and_in_order(Batches, AROUND),
    inbox_with_a_set_based_handler: once_and_in_order(SetBased, AROUND),
    unique_constraint: once_and_in_order(UniqueConstraint, AROUND),
    upsert: once_and_in_order(Upsert, AROUND),
    conditional_update: once_and_in_order(ConditionalUpdate, AROUND),
    guard_row: once_and_in_order(GuardRow, AROUND),
    version: once_and_in_order(Version, AROUND),
    delayed_in_the_database: once_and_in_order(DelayedInTheDatabase, DELAYED),
    delayed_in_a_topic: once(DelayedInATopic, MOVED),
}
