//! The database server itself is killed under a running worker, several times.
//!
//! Commits are lost under way (the writer says "unknown"), the relay and the consumer lose every connection, and the
//! server recovers from its log while they ask for it. The worker must outlive all of it by itself, and then everything
//! must be as if the server had never been away.

use landfall_system_tests::{Adapter, Event, PATIENCE, World};
use landfall_testkit::eventually;
use landfall_testkit::servers::{MariaDbServer, PostgresServer, mariadb, postgres};

use crate::WORLD;

const KILLS: usize = 4;

#[tokio::test]
async fn a_worker_outlives_its_postgresql_server() {
    if postgres().await.is_none() {
        return;
    }
    let server = PostgresServer::start().await.unwrap();
    let world = World::on_server(WORLD, 21, &server).await;
    outlives(world, async || {
        server.kill_9().await.unwrap();
        server.restart().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_worker_outlives_its_mariadb_server() {
    if mariadb().await.is_none() {
        return;
    }
    let server = MariaDbServer::start().await.unwrap();
    let world = World::on_mariadb(WORLD, 22, &server).await;
    outlives(world, async || {
        server.kill_9().await.unwrap();
        server.restart().await.unwrap();
    })
    .await;
}

async fn outlives<D: Adapter>(mut world: World<D>, kill_and_restart: impl AsyncFn()) {
    let life = world.begin();
    life.ready().await;
    for _ in 0..KILLS {
        // Each time in the middle of work: after some more commits and effects than before.
        let (commits, effects) = (life.count(is_ok), world.count_effects().await);
        eventually(PATIENCE, "the worker is at work again", async || {
            life.count(is_ok) > commits + 50 && world.count_effects().await > effects + 50
        })
        .await;
        kill_and_restart().await;
    }
    world.stop(life).await;
    world.drain().await;
    let verdict = world.judge().await;
    println!("{verdict}");
    verdict.assert_nothing_is_wrong();
}

fn is_ok(event: &Event) -> bool {
    matches!(event, Event::Ok { .. })
}
