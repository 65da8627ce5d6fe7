//! What a handler leaves behind: a transaction that is none any more, an effect that was there, more than a topic takes.

use std::sync::Arc;

use landfall::consume::{Consumer, Context, Early, SequenceCheck, already_done, plain};
use landfall::{DeadLetterFilter, ErrorCode, Failure, Limits, Message};
use landfall_mysql::MySql;
use landfall_postgres::Postgres;
use landfall_sqlite::Sqlite;
use landfall_testkit::{MemoryBroker, eventually};
use tokio_util::sync::CancellationToken;

use crate::batches::apply;
use crate::ground::{Ground, PATIENCE, QUICK, group, message, options, topic};
use crate::on_every_database;
use crate::place::Place;

on_every_database!(a_number_whose_effect_was_there_lets_its_successor_pass);

/// Parked at first. After it was redriven it does its work, meets an error that ends the transaction, and says nothing.
async fn swallows<D: Place>(context: Context<'_, D>) -> Result<(), Failure> {
    if context.attempt == 1 {
        return Err(Failure::park(ErrorCode::VALIDATION, "not yet"));
    }
    D::record(&mut *context.connection, context.message).await?;
    match D::ERRORS_BREAK {
        true => drop(D::blunder(context.connection).await),
        // As a deadlock does it.
        false => drop(D::execute(context.connection, "ROLLBACK", &[]).await),
    }
    Ok(())
}

/// It has neither taken effect nor may it count as done.
async fn is_parked_again<D: Place>(ground: Ground<D>) {
    ground.publish(&[message("a", 1, "good")]).await;
    let running = ground.consumer(options(), plain(swallows::<D>));
    ground.settle(1).await;
    ground.database.redrive(&DeadLetterFilter::default(), "test").await.unwrap();
    eventually(PATIENCE, "it is parked again, with all its tries", async || {
        let stats = ground.database.dead_letter_stats().await.unwrap();
        stats.parked == 1 && ground.letters().await[0].attempts > QUICK.max_attempts
    })
    .await;
    running.stop().await;
    assert!(ground.database.effects().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_whose_handler_broke_the_transaction_is_parked_again_on_postgresql() {
    let Some(ground) = Ground::<Postgres>::new().await else { return };
    is_parked_again(ground).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_whose_handler_broke_the_transaction_is_parked_again_on_mariadb() {
    let Some(ground) = Ground::<MySql>::new().await else { return };
    is_parked_again(ground).await;
}

/// The second was done before, by whatever the handler looks at.
async fn second_was_there<D: Place>(context: Context<'_, D>) -> Result<(), Failure> {
    if context.message.sequence == Some(2) {
        return Err(already_done("it is there"));
    }
    apply(context).await
}

async fn a_number_whose_effect_was_there_lets_its_successor_pass<D: Place>(ground: Ground<D>) {
    let check = SequenceCheck::Consecutive { first: Some(1), early: Early::Park };
    let running = ground.consumer_in_sequence(options(), check, plain(second_was_there::<D>));
    for number in 1..=3 {
        ground.publish(&[message("a", number, "good")]).await;
        ground.is_drained().await;
    }
    running.stop().await;
    let effects = ground.database.effects().await;
    assert_eq!(effects.iter().filter_map(|effect| effect.sequence).collect::<Vec<_>>(), [1, 3]);
    assert!(ground.letters().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_that_is_too_large_for_its_topic_is_in_the_table() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits { payload_bytes: 8 };
    let path = folder.path().join("small.db");
    let small = landfall_sqlite::Options { limits, ..Default::default() };
    let database = Sqlite::open(path.to_str().unwrap(), small).await.unwrap();
    database.prepare().await;
    let ground = Ground { database, broker: Arc::new(MemoryBroker::new()) };
    // From somebody whose limit is another.
    ground.publish(&[Message { payload: "more than eight".into(), ..message("a", 1, "poison") }]).await;
    let (database, broker) = (ground.database.clone(), ground.broker.clone());
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
    ground.settle(1).await;
    ground.is_drained().await;
    stop.cancel();
    running.await.unwrap().unwrap();
    assert_eq!(ground.letters().await.len(), 1);
}
