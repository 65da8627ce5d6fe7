//! Every way to be idempotent on a broker that delivers each message about ten times, in several copies at once, and loses
//! memberships in the middle of a batch; with messages among the others, of the same keys and of their own, that fail once, that
//! are given up after the last try and that are given up at once, until a person redrives them.

use std::sync::Arc;
use std::time::Duration;

use landfall::consume::{
    BatchContext, Consumer, Context, Idempotence, Options, RedisFront, SequenceCheck, changed, handler_fn, plain_batch,
};
use landfall::{Broker, DeadLetterFilter, DeadLetterStatus, ErrorCode, Failure, Message};
use landfall_testkit::chaos::{ChaosBroker, ChaosOptions};
use landfall_testkit::servers::RedisServer;
use landfall_testkit::{current_test, eventually};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::ground::{Ground, PATIENCE, QUICK, group, message, options, topic};
use crate::on_every_database;
use crate::place::Place;
use crate::strategies::constraint;

on_every_database!(
    a_set_based_handler_stands_it,
    a_unique_constraint_stands_it,
    an_upsert_stands_it,
    a_conditional_update_stands_it,
    a_guard_row_stands_it,
    a_version_stands_it,
    redis_in_front_stands_it_and_is_flushed_all_the_time,
);

const KEYS: i64 = 4;
const EACH: i64 = 12;

fn messages() -> Vec<Message> {
    let mut messages = Vec::new();
    for n in 1..=EACH {
        for key in 0..KEYS {
            let kind = match (key, n) {
                (0, 4) => "given up at once",
                (1, 5) => "given up in the end",
                (_, n) if (n + key) % 5 == 0 => "flaky",
                _ => "good",
            };
            messages.push(message(&format!("key-{key}"), n, kind));
        }
    }
    messages
}

/// How a try ends, after everything was written.
fn judge(message: &Message, attempt: u32) -> Result<(), Failure> {
    match message.kind.as_str() {
        "flaky" if attempt == 1 => Err(Failure::retry("it works the second time")),
        "given up at once" if attempt == 1 => Err(Failure::park(ErrorCode::new("poison"), "not repaired yet")),
        "given up in the end" if attempt <= QUICK.max_attempts => Err(Failure::retry("not repaired yet")),
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

async fn guarded<D: Place>(guard: Guard, mut context: Context<'_, D>) -> Result<(), Failure> {
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
            let update = "UPDATE tallies SET applied = ? WHERE customer = ? AND applied = ?";
            let (number, before) = (number.to_string(), (number - 1).to_string());
            changed(D::execute(&mut *context.connection, update, &[&number, &key, &before]).await?)?;
        }
        Guard::Row => context.first_time("order", &id).await?,
    }
    judge(message, context.attempt)
}

async fn slices<D: Place>(context: BatchContext<'_, D>) -> Result<(), Failure> {
    D::record_all(&mut *context.connection, context.messages).await?;
    context.messages.iter().try_for_each(|message| judge(message, context.attempt))
}

/// The troubles, and one consumer that is started on them; everything is as it must be in the end.
async fn stands_it<D: Place>(
    ground: Ground<D>,
    start: impl FnOnce(D, Arc<dyn Broker>, CancellationToken) -> JoinHandle<landfall::Result<()>>,
) {
    ground
        .database
        .run("CREATE TABLE orders (number VARCHAR(40) NOT NULL, CONSTRAINT orders_number UNIQUE (number))")
        .await;
    ground.database.run("CREATE TABLE tallies (customer VARCHAR(40) PRIMARY KEY, applied VARCHAR(40) NOT NULL)").await;
    for key in 0..KEYS {
        ground.database.run(&format!("INSERT INTO tallies VALUES ('key-{key}', '0')")).await;
    }
    let troubles = ChaosOptions {
        duplicated: 0.5,
        duplicates_max: 18,
        ..ChaosOptions::everything(rand::random_range(0..1_000_000))
    };
    let (seed, broker) = (troubles.seed, ChaosBroker::around(ground.broker.clone(), troubles));
    ground.publish(&messages()).await;
    let stop = CancellationToken::new();
    let consumer = start(ground.database.clone(), Arc::new(broker.clone()), stop.clone());
    let parked = DeadLetterFilter { status: Some(DeadLetterStatus::Parked), ..Default::default() };
    eventually(PATIENCE, "two are given up", async || ground.database.find(&parked, 10).await.unwrap().len() == 2)
        .await;
    ground.database.redrive(&parked, "test").await.unwrap();
    ground.effects_become((KEYS * EACH) as usize).await;
    broker.heal();
    eventually(PATIENCE, "no copy is left", async || {
        ground.broker.unfinished(&topic(), &group()) == 0 && broker.unacked_duplicates() == 0
    })
    .await;
    stop.cancel();
    consumer.await.unwrap().unwrap();
    let effects = ground.database.effects().await;
    for key in 0..KEYS {
        let key = Some(format!("key-{key}"));
        let numbers: Vec<_> =
            effects.iter().filter(|effect| effect.key == key).filter_map(|effect| effect.sequence).collect();
        assert_eq!(numbers, (1..=EACH).collect::<Vec<_>>(), "{key:?}, seed {seed}, {:?}", broker.counts());
    }
}

async fn with_guard<D: Place>(ground: Ground<D>, guard: Guard) {
    stands_it(ground, |database, broker, stop| {
        let options = Options { batch: 5, concurrency: 4, idempotence: Idempotence::Handler, ..options() };
        let handler = handler_fn::<D, _>(move |context| Box::pin(guarded(guard, context)));
        tokio::spawn(Consumer::new(database, broker, topic(), group(), handler, options).run(stop))
    })
    .await;
}

async fn a_unique_constraint_stands_it<D: Place>(ground: Ground<D>) {
    with_guard(ground, Guard::UniqueConstraint).await;
}

async fn an_upsert_stands_it<D: Place>(ground: Ground<D>) {
    with_guard(ground, Guard::Upsert).await;
}

async fn a_conditional_update_stands_it<D: Place>(ground: Ground<D>) {
    with_guard(ground, Guard::ConditionalUpdate).await;
}

async fn a_guard_row_stands_it<D: Place>(ground: Ground<D>) {
    with_guard(ground, Guard::Row).await;
}

async fn a_set_based_handler_stands_it<D: Place>(ground: Ground<D>) {
    stands_it(ground, |database, broker, stop| {
        let options = Options { batch: 10, concurrency: 4, ..options() };
        let handler = plain_batch(slices::<D>);
        tokio::spawn(Consumer::of_batches(database, broker, topic(), group(), handler, options).run(stop))
    })
    .await;
}

async fn a_version_stands_it<D: Place>(ground: Ground<D>) {
    stands_it(ground, |database, broker, stop| {
        let options = Options { batch: 5, concurrency: 4, ..options() };
        let handler = handler_fn::<D, _>(|context| Box::pin(guarded(Guard::None, context)));
        let consumer = Consumer::new(database, broker, topic(), group(), handler, options);
        tokio::spawn(consumer.in_sequence(SequenceCheck::Newest).run(stop))
    })
    .await;
}

async fn redis_in_front_stands_it_and_is_flushed_all_the_time<D: Place>(ground: Ground<D>) {
    let Some(redis) = RedisServer::start(&current_test()).await else { return };
    let redis = Arc::new(redis);
    let flushed = redis.clone();
    let flushing = tokio::spawn(async move {
        loop {
            flushed.flush().await.unwrap();
            // A trouble that comes again and again, not a wait for something.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    stands_it(ground, |database, broker, stop| {
        let options = Options { batch: 5, concurrency: 4, ..options() };
        let handler = handler_fn::<D, _>(|context| Box::pin(guarded(Guard::None, context)));
        let front = RedisFront::new(&redis.url(), Duration::from_secs(600)).unwrap();
        let consumer = Consumer::new(database, broker, topic(), group(), handler, options).behind(front);
        tokio::spawn(consumer.run(stop))
    })
    .await;
    flushing.abort();
}
