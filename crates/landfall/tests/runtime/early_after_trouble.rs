//! A message that comes too early when the database is in trouble: that it is early turns out only when it is alone and
//! its lane waits for it, with its predecessor behind it.

use std::time::Duration;

use landfall::Inbox;
use landfall::consume::{Early, SequenceCheck, plain};
use landfall_postgres::Postgres;
use landfall_testkit::eventually;
use sqlx::Connection;

use crate::batches::{apply, batched};
use crate::ground::{Ground, PATIENCE, group, message};
use crate::place::Place;

#[tokio::test(flavor = "multi_thread")]
async fn what_turns_out_to_be_early_after_trouble_lets_its_predecessor_pass() {
    let Some(ground) = Ground::<Postgres>::new().await else { return };
    let (first, second) = (message("a", 1, "good"), message("a", 2, "good"));
    let options = (*ground.database.pool().connect_options()).clone();
    let mut blocker = sqlx::PgConnection::connect_with(&options).await.unwrap();
    let mut watch = sqlx::PgConnection::connect_with(&options).await.unwrap();

    // Somebody is about to take charge of it, so the consumer waits, and loses its connection.
    let mut taken = blocker.begin().await.unwrap();
    ground.database.admit(&mut taken, &group(), &second, None).await.unwrap();
    ground.publish(std::slice::from_ref(&second)).await;
    let wait = SequenceCheck::Consecutive { first: Some(1), early: Early::Wait(Duration::from_secs(3600)) };
    let running = ground.consumer_in_sequence(batched(1, 2), wait, plain(apply::<Postgres>));
    let terminate = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0";
    eventually(PATIENCE, "the consumer waits and is cut off", async || {
        sqlx::query_scalar::<_, i64>(terminate).fetch_one(&mut watch).await.unwrap() > 0
    })
    .await;
    taken.rollback().await.unwrap();

    ground.publish(&[first]).await;
    ground.effects_become(2).await;
    running.stop().await;
    let numbers: Vec<_> = ground.database.effects().await.iter().filter_map(|effect| effect.sequence).collect();
    assert_eq!(numbers, [1, 2]);
}
