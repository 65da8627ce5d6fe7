//! Handlers that abort their transaction, find their effect done, or fail with a message too large for the topic.

use std::sync::Arc;

use landfall::consume::{Consumer, Context, Early, SequenceCheck, already_done, plain};
use landfall::{DeadLetterFilter, ErrorCode, Failure, Limits, Message};
use landfall_mysql::MySql;
use landfall_postgres::Postgres;
use landfall_sqlite::Sqlite;
use landfall_testkit::{MemoryBroker, eventually};
use tokio_util::sync::CancellationToken;

use crate::batches::apply;
use crate::database::TestDatabase;
use crate::fixture::{Fixture, QUICK, TIMEOUT, group, message, options, topic};
use crate::on_every_database;

on_every_database!(already_done_message_lets_its_successor_pass);

/// Parked at first. After a redrive it writes, causes an error that aborts the transaction, and returns `Ok`.
async fn swallows_error<D: TestDatabase>(context: Context<'_, D>) -> Result<(), Failure> {
    if context.attempt == 1 {
        return Err(Failure::park(ErrorCode::VALIDATION, "not yet"));
    }
    D::record(&mut *context.connection, context.message).await?;
    match D::ERRORS_BREAK {
        true => drop(D::failing_statement(context.connection).await),
        // As a deadlock does.
        false => drop(D::execute(context.connection, "ROLLBACK", &[]).await),
    }
    Ok(())
}

/// The message has no effect and must not count as done.
async fn is_parked_again<D: TestDatabase>(fixture: Fixture<D>) {
    fixture.publish(&[message("a", 1, "good")]).await;
    let running = fixture.consumer(options(), plain(swallows_error::<D>));
    fixture.settle(1).await;
    fixture.database.redrive(&DeadLetterFilter::default(), "test").await.unwrap();
    eventually(TIMEOUT, "parked again, with all attempts", async || {
        let stats = fixture.database.dead_letter_stats().await.unwrap();
        stats.parked == 1 && fixture.letters().await[0].attempts > QUICK.max_attempts
    })
    .await;
    running.stop().await;
    assert!(fixture.database.effects().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn swallowed_sql_error_parks_a_redriven_letter_again_on_postgresql() {
    let Some(fixture) = Fixture::<Postgres>::new().await else { return };
    is_parked_again(fixture).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn swallowed_sql_error_parks_a_redriven_letter_again_on_mariadb() {
    let Some(fixture) = Fixture::<MySql>::new().await else { return };
    is_parked_again(fixture).await;
}

/// Reports that the effect of the second message exists already.
async fn second_is_already_done<D: TestDatabase>(context: Context<'_, D>) -> Result<(), Failure> {
    if context.message.sequence == Some(2) {
        return Err(already_done("the effect exists"));
    }
    apply(context).await
}

async fn already_done_message_lets_its_successor_pass<D: TestDatabase>(fixture: Fixture<D>) {
    let check = SequenceCheck::Consecutive { first: Some(1), early: Early::Park };
    let running = fixture.consumer_in_sequence(options(), check, plain(second_is_already_done::<D>));
    for number in 1..=3 {
        fixture.publish(&[message("a", number, "good")]).await;
        fixture.is_drained().await;
    }
    running.stop().await;
    let effects = fixture.database.effects().await;
    assert_eq!(effects.iter().filter_map(|effect| effect.sequence).collect::<Vec<_>>(), [1, 3]);
    assert!(fixture.letters().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letter_too_large_for_its_topic_is_in_the_table() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits { payload_bytes: 8 };
    let path = folder.path().join("small.db");
    let small = landfall_sqlite::Options { limits, ..Default::default() };
    let database = Sqlite::open(path.to_str().unwrap(), small).await.unwrap();
    database.prepare().await;
    let fixture = Fixture { database, broker: Arc::new(MemoryBroker::new()) };
    // From a producer with another limit.
    fixture.publish(&[Message { payload: "more than eight".into(), ..message("a", 1, "poison") }]).await;
    let (database, broker) = (fixture.database.clone(), fixture.broker.clone());
    let consumer = Consumer::builder(database, broker)
        .topic(topic())
        .group(group())
        .handler(plain(apply::<Sqlite>))
        .options(options())
        .dead_letter_topic()
        .build()
        .unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(consumer.run(stop.clone()));
    fixture.settle(1).await;
    fixture.is_drained().await;
    stop.cancel();
    running.await.unwrap().unwrap();
    assert_eq!(fixture.letters().await.len(), 1);
}
