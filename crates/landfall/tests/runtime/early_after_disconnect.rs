//! A message whose first attempt loses its connection turns out to be early only when it is isolated. Meanwhile its
//! lane waits for it, with its predecessor behind it.

use std::time::Duration;

use landfall::Inbox;
use landfall::consume::{Early, SequenceCheck, plain};
use landfall_postgres::Postgres;
use landfall_testkit::eventually;
use sqlx::Connection;

use crate::batches::{apply, batched};
use crate::database::TestDatabase;
use crate::fixture::{Fixture, TIMEOUT, group, message};

#[tokio::test(flavor = "multi_thread")]
async fn message_found_early_after_a_disconnect_lets_its_predecessor_pass() {
    let Some(fixture) = Fixture::<Postgres>::new().await else { return };
    let (first, second) = (message("a", 1, "good"), message("a", 2, "good"));
    let options = (*fixture.database.pool().connect_options()).clone();
    let mut blocker = sqlx::PgConnection::connect_with(&options).await.unwrap();
    let mut watch = sqlx::PgConnection::connect_with(&options).await.unwrap();

    // Another transaction has inserted its inbox row, so the consumer waits, and loses its connection.
    let mut admitted = blocker.begin().await.unwrap();
    fixture.database.admit(&mut admitted, &group(), &second, None).await.unwrap();
    fixture.publish(std::slice::from_ref(&second)).await;
    let wait = SequenceCheck::Consecutive { first: Some(1), early: Early::Wait(Duration::from_secs(3600)) };
    let running = fixture.consumer_in_sequence(batched(1, 2), wait, plain(apply::<Postgres>));
    let terminate = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0";
    eventually(TIMEOUT, "the connection of the waiting consumer is terminated", async || {
        sqlx::query_scalar::<_, i64>(terminate).fetch_one(&mut watch).await.unwrap() > 0
    })
    .await;
    admitted.rollback().await.unwrap();

    fixture.publish(&[first]).await;
    fixture.effects_become(2).await;
    running.stop().await;
    let numbers: Vec<_> = fixture.database.effects().await.iter().filter_map(|effect| effect.sequence).collect();
    assert_eq!(numbers, [1, 2]);
}
