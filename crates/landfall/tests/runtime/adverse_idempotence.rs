//! Every way to be idempotent on an adverse broker. It delivers each message about ten times, to several members at
//! once, and loses memberships in the middle of a batch. Some messages fail once, some are parked after the last
//! attempt and some at once, until they are redriven.

use std::sync::Arc;
use std::time::Duration;

use landfall::consume::{
    BatchContext, Consumer, Context, Idempotence, Options, RedisDedupCache, SequenceCheck, changed, handler_fn,
    plain_batch,
};
use landfall::{Broker, DeadLetterFilter, DeadLetterStatus, ErrorCode, Failure, Message};
use landfall_testkit::chaos::{ChaosBroker, ChaosOptions};
use landfall_testkit::servers::RedisServer;
use landfall_testkit::{current_test, eventually};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::database::TestDatabase;
use crate::fixture::{Fixture, QUICK, TIMEOUT, group, message, options, topic};
use crate::idempotence::constraint;
use crate::on_every_database;

on_every_database!(
    batch_handler_tolerates_an_adverse_broker,
    unique_constraint_tolerates_an_adverse_broker,
    upsert_tolerates_an_adverse_broker,
    conditional_update_tolerates_an_adverse_broker,
    guard_row_tolerates_an_adverse_broker,
    version_check_tolerates_an_adverse_broker,
    flushed_redis_cache_tolerates_an_adverse_broker,
);

const KEYS: i64 = 4;
const EACH: i64 = 12;

fn messages() -> Vec<Message> {
    let mut messages = Vec::new();
    for n in 1..=EACH {
        for key in 0..KEYS {
            let kind = match (key, n) {
                (0, 4) => "parked at once",
                (1, 5) => "parked in the end",
                (_, n) if (n + key) % 5 == 0 => "flaky",
                _ => "good",
            };
            messages.push(message(&format!("key-{key}"), n, kind));
        }
    }
    messages
}

/// The result of an attempt, after its writes.
fn result_of(message: &Message, attempt: u32) -> Result<(), Failure> {
    match message.kind.as_str() {
        "flaky" if attempt == 1 => Err(Failure::retry("it works the second time")),
        "parked at once" if attempt == 1 => Err(Failure::park(ErrorCode::new("poison"), "not repaired yet")),
        "parked in the end" if attempt <= QUICK.max_attempts => Err(Failure::retry("not repaired yet")),
        _ => Ok(()),
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Guard {
    None,
    UniqueConstraint,
    Upsert,
    ConditionalUpdate,
    Row,
}

async fn guarded<D: TestDatabase>(guard: Guard, mut context: Context<'_, D>) -> Result<(), Failure> {
    let Context { message, .. } = context;
    let id = message.id.to_string();
    D::record(&mut *context.connection, message).await?;
    match guard {
        Guard::None => {}
        Guard::UniqueConstraint => {
            let insert = "INSERT INTO orders (number) VALUES (?)";
            let inserted = D::execute(&mut *context.connection, insert, &[&id]).await;
            context.unless_there(inserted, constraint::<D>())?;
        }
        Guard::Upsert => {
            let insert = match std::any::type_name::<D>().contains("MySql") {
                true => "INSERT IGNORE INTO orders (number) VALUES (?)",
                false => "INSERT INTO orders (number) VALUES (?) ON CONFLICT DO NOTHING",
            };
            changed(D::execute(&mut *context.connection, insert, &[&id]).await?)?;
        }
        Guard::ConditionalUpdate => {
            let key = message.key.as_ref().map(ToString::to_string).unwrap_or_default();
            let number = message.sequence.unwrap_or_default();
            let update = "UPDATE applied_counts SET applied = ? WHERE customer = ? AND applied = ?";
            let (number, before) = (number.to_string(), (number - 1).to_string());
            changed(D::execute(&mut *context.connection, update, &[&number, &key, &before]).await?)?;
        }
        Guard::Row => context.first_time("order", &id).await?,
    }
    result_of(message, context.attempt)
}

async fn handle_batch<D: TestDatabase>(context: BatchContext<'_, D>) -> Result<(), Failure> {
    D::record_all(&mut *context.connection, context.messages).await?;
    context.messages.iter().try_for_each(|message| result_of(message, context.attempt))
}

/// Runs one consumer on the adverse broker and asserts that each key has each number once, in order.
async fn assert_tolerates<D: TestDatabase>(
    fixture: Fixture<D>,
    start: impl FnOnce(D, Arc<dyn Broker>, CancellationToken) -> JoinHandle<landfall::Result<()>>,
) {
    fixture
        .database
        .run("CREATE TABLE orders (number VARCHAR(40) NOT NULL, CONSTRAINT orders_number UNIQUE (number))")
        .await;
    fixture
        .database
        .run("CREATE TABLE applied_counts (customer VARCHAR(40) PRIMARY KEY, applied VARCHAR(40) NOT NULL)")
        .await;
    for key in 0..KEYS {
        fixture.database.run(&format!("INSERT INTO applied_counts VALUES ('key-{key}', '0')")).await;
    }
    let troubles = ChaosOptions {
        duplicated: 0.5,
        duplicates_max: 18,
        ..ChaosOptions::everything(rand::random_range(0..1_000_000))
    };
    let (seed, broker) = (troubles.seed, ChaosBroker::around(fixture.broker.clone(), troubles));
    fixture.publish(&messages()).await;
    let stop = CancellationToken::new();
    let consumer = start(fixture.database.clone(), Arc::new(broker.clone()), stop.clone());
    let parked = DeadLetterFilter { status: Some(DeadLetterStatus::Parked), ..Default::default() };
    eventually(TIMEOUT, "two messages are parked", async || {
        fixture.database.find(&parked, 10).await.unwrap().len() == 2
    })
    .await;
    fixture.database.redrive(&parked, "test").await.unwrap();
    fixture.effects_become((KEYS * EACH) as usize).await;
    broker.heal();
    eventually(TIMEOUT, "every duplicate is settled", async || {
        fixture.broker.unfinished(&topic(), &group()) == 0 && broker.unacked_duplicates() == 0
    })
    .await;
    stop.cancel();
    consumer.await.unwrap().unwrap();
    let effects = fixture.database.effects().await;
    for key in 0..KEYS {
        let key = Some(format!("key-{key}"));
        let numbers: Vec<_> =
            effects.iter().filter(|effect| effect.key == key).filter_map(|effect| effect.sequence).collect();
        assert_eq!(numbers, (1..=EACH).collect::<Vec<_>>(), "{key:?}, seed {seed}, {:?}", broker.counts());
    }
}

async fn with_guard<D: TestDatabase>(fixture: Fixture<D>, guard: Guard) {
    assert_tolerates(fixture, |database, broker, stop| {
        let options = Options { batch: 5, concurrency: 4, idempotence: Idempotence::Handler, ..options() };
        let handler = handler_fn::<D, _>(move |context| Box::pin(guarded(guard, context)));
        tokio::spawn(
            Consumer::builder(database, broker)
                .topic(topic())
                .group(group())
                .handler(handler)
                .options(options)
                .build()
                .unwrap()
                .run(stop),
        )
    })
    .await;
}

async fn unique_constraint_tolerates_an_adverse_broker<D: TestDatabase>(fixture: Fixture<D>) {
    with_guard(fixture, Guard::UniqueConstraint).await;
}

async fn upsert_tolerates_an_adverse_broker<D: TestDatabase>(fixture: Fixture<D>) {
    with_guard(fixture, Guard::Upsert).await;
}

async fn conditional_update_tolerates_an_adverse_broker<D: TestDatabase>(fixture: Fixture<D>) {
    with_guard(fixture, Guard::ConditionalUpdate).await;
}

async fn guard_row_tolerates_an_adverse_broker<D: TestDatabase>(fixture: Fixture<D>) {
    with_guard(fixture, Guard::Row).await;
}

async fn batch_handler_tolerates_an_adverse_broker<D: TestDatabase>(fixture: Fixture<D>) {
    assert_tolerates(fixture, |database, broker, stop| {
        let options = Options { batch: 10, concurrency: 4, ..options() };
        let handler = plain_batch(handle_batch::<D>);
        tokio::spawn(
            Consumer::builder(database, broker)
                .topic(topic())
                .group(group())
                .batch_handler(handler)
                .options(options)
                .build()
                .unwrap()
                .run(stop),
        )
    })
    .await;
}

async fn version_check_tolerates_an_adverse_broker<D: TestDatabase>(fixture: Fixture<D>) {
    assert_tolerates(fixture, |database, broker, stop| {
        let options = Options { batch: 5, concurrency: 4, ..options() };
        let handler = handler_fn::<D, _>(|context| Box::pin(guarded(Guard::None, context)));
        let consumer = Consumer::builder(database, broker)
            .topic(topic())
            .group(group())
            .handler(handler)
            .options(options)
            .sequence_check(SequenceCheck::Newest)
            .build()
            .unwrap();
        tokio::spawn(consumer.run(stop))
    })
    .await;
}

async fn flushed_redis_cache_tolerates_an_adverse_broker<D: TestDatabase>(fixture: Fixture<D>) {
    let Some(redis) = RedisServer::start(&current_test()).await else { return };
    let redis = Arc::new(redis);
    let flushed = redis.clone();
    let flushing = tokio::spawn(async move {
        loop {
            flushed.flush().await.unwrap();
            // The fault repeats; this is not a wait for a condition.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert_tolerates(fixture, |database, broker, stop| {
        let options = Options { batch: 5, concurrency: 4, ..options() };
        let handler = handler_fn::<D, _>(|context| Box::pin(guarded(Guard::None, context)));
        let cache = RedisDedupCache::new(&redis.url(), Duration::from_secs(600)).unwrap();
        let consumer = Consumer::builder(database, broker)
            .topic(topic())
            .group(group())
            .handler(handler)
            .options(options)
            .dedup_cache(cache)
            .build()
            .unwrap();
        tokio::spawn(consumer.run(stop))
    })
    .await;
    flushing.abort();
}
