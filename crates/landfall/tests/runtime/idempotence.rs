//! Every way to be idempotent, with ten duplicates of each message handled by two members at the same time.

use std::collections::BTreeMap;

use landfall::consume::{Context, Handler, Idempotence, Options, SequenceCheck, changed, plain};
use landfall::{Backoff, DeadLetterFilter, ErrorCode, Failure, Message};
use rand::seq::SliceRandom;

use crate::database::TestDatabase;
use crate::fixture::{Fixture, QUICK, message};
use crate::on_every_database;

on_every_database!(
    inbox_discards_duplicates,
    unique_constraint_discards_duplicates,
    conditional_update_discards_duplicates,
    upsert_discards_duplicates,
    guard_row_discards_duplicates,
    version_check_discards_duplicates,
    redriven_dead_letter_with_existing_effect_is_done,
    other_constraint_violation_is_a_failure,
);

const ORDERS: i64 = 12;
const COPIES: usize = 10;

/// Shuffled duplicates of every order. With `new_ids` only their content shows that they are duplicates.
fn duplicates(new_ids: bool) -> Vec<Message> {
    let mut duplicates = Vec::new();
    for order in 1..=ORDERS {
        let original = message(&format!("order-{order}"), 1, "good");
        for _ in 0..COPIES {
            duplicates.push(if new_ids { message(&format!("order-{order}"), 1, "good") } else { original.clone() });
        }
    }
    duplicates.shuffle(&mut rand::rng());
    duplicates
}

fn number(context: &Context<'_, impl TestDatabase>) -> String {
    context.message.key.as_ref().map(ToString::to_string).unwrap()
}

/// Enough attempts for deadlocks between members, which are not the subject of these tests.
fn many_attempts(batch: usize, idempotence: Idempotence) -> Options {
    let backoff = Backoff { max_attempts: 50, ..QUICK };
    Options { batch, idempotence, concurrency: 4, backoff, ..crate::fixture::options() }
}

/// Two members, one with batches, handle the same duplicates: each order takes effect once.
async fn takes_effect_once<D: TestDatabase, H: Handler<D>>(
    fixture: &Fixture<D>,
    messages: &[Message],
    options: Options,
    handler: fn() -> H,
) {
    fixture.publish(messages).await;
    let members = [1, 20].map(|batch| fixture.consumer(Options { batch, ..options.clone() }, handler()));
    fixture.effects_become(ORDERS as usize).await;
    fixture.is_drained().await;
    for member in members {
        member.stop().await;
    }
    let mut effects: BTreeMap<_, usize> = BTreeMap::new();
    for effect in fixture.database.effects().await {
        *effects.entry(effect.key).or_default() += 1;
    }
    assert_eq!(effects.len(), ORDERS as usize);
    assert!(effects.values().all(|count| *count == 1), "{effects:?}");
    assert!(fixture.letters().await.is_empty(), "{:?}", fixture.letters().await);
    fixture.all_is_acknowledged().await;
}

async fn record<D: TestDatabase>(context: Context<'_, D>) -> Result<(), Failure> {
    D::record(context.connection, context.message).await?;
    Ok(())
}

async fn inbox_discards_duplicates<D: TestDatabase>(fixture: Fixture<D>) {
    takes_effect_once(&fixture, &duplicates(false), many_attempts(1, Idempotence::Inbox), || plain(record::<D>)).await;
}

/// SQLite reports the columns; the others name the constraint.
pub(crate) fn constraint<D: TestDatabase>() -> &'static str {
    if std::any::type_name::<D>().contains("Sqlite") { "orders.number" } else { "orders_number" }
}

async fn insert_order<D: TestDatabase>(context: Context<'_, D>) -> Result<(), Failure> {
    let number = number(&context);
    // The effect comes first: it must be rolled back when the order exists already.
    D::record(&mut *context.connection, context.message).await?;
    let inserted = D::execute(&mut *context.connection, "INSERT INTO orders (number) VALUES (?)", &[&number]).await;
    context.unless_there(inserted, constraint::<D>())?;
    Ok(())
}

const ORDERS_TABLE: &str =
    "CREATE TABLE orders (number VARCHAR(40) NOT NULL, CONSTRAINT orders_number UNIQUE (number))";

async fn unique_constraint_discards_duplicates<D: TestDatabase>(fixture: Fixture<D>) {
    fixture.database.run(ORDERS_TABLE).await;
    takes_effect_once(&fixture, &duplicates(true), many_attempts(1, Idempotence::Handler), || plain(insert_order::<D>))
        .await;
    assert_eq!(fixture.database.number("SELECT COUNT(*) FROM landfall_inbox").await, 0, "no inbox row is written");
}

async fn ship<D: TestDatabase>(context: Context<'_, D>) -> Result<(), Failure> {
    let number = number(&context);
    let update = "UPDATE shipments SET state = 'shipped' WHERE number = ? AND state = 'open'";
    changed(D::execute(&mut *context.connection, update, &[&number]).await?)?;
    record(context).await
}

async fn conditional_update_discards_duplicates<D: TestDatabase>(fixture: Fixture<D>) {
    fixture.database.run("CREATE TABLE shipments (number VARCHAR(40) PRIMARY KEY, state VARCHAR(10) NOT NULL)").await;
    for order in 1..=ORDERS {
        fixture.database.run(&format!("INSERT INTO shipments VALUES ('order-{order}', 'open')")).await;
    }
    takes_effect_once(&fixture, &duplicates(true), many_attempts(1, Idempotence::Handler), || plain(ship::<D>)).await;
}

async fn upsert<D: TestDatabase>(context: Context<'_, D>) -> Result<(), Failure> {
    let number = number(&context);
    let insert = match std::any::type_name::<D>().contains("MySql") {
        true => "INSERT IGNORE INTO orders (number) VALUES (?)",
        false => "INSERT INTO orders (number) VALUES (?) ON CONFLICT DO NOTHING",
    };
    changed(D::execute(&mut *context.connection, insert, &[&number]).await?)?;
    record(context).await
}

async fn upsert_discards_duplicates<D: TestDatabase>(fixture: Fixture<D>) {
    fixture.database.run(ORDERS_TABLE).await;
    takes_effect_once(&fixture, &duplicates(true), many_attempts(1, Idempotence::Handler), || plain(upsert::<D>)).await;
}

async fn guarded<D: TestDatabase>(mut context: Context<'_, D>) -> Result<(), Failure> {
    let number = number(&context);
    context.first_time("order", &number).await?;
    record(context).await
}

async fn guard_row_discards_duplicates<D: TestDatabase>(fixture: Fixture<D>) {
    takes_effect_once(&fixture, &duplicates(true), many_attempts(1, Idempotence::Inbox), || plain(guarded::<D>)).await;
}

async fn version_check_discards_duplicates<D: TestDatabase>(fixture: Fixture<D>) {
    fixture.publish(&duplicates(true)).await;
    let members = [1, 20].map(|batch| {
        let options = many_attempts(batch, Idempotence::Handler);
        fixture.consumer_in_sequence(options, SequenceCheck::Newest, plain(record::<D>))
    });
    fixture.effects_become(ORDERS as usize).await;
    fixture.is_drained().await;
    for member in members {
        member.stop().await;
    }
    assert_eq!(fixture.database.effects().await.len(), ORDERS as usize);
    fixture.all_is_acknowledged().await;
}

/// The work was done by hand after the handler had failed; the redrive must not do it again.
async fn redriven_dead_letter_with_existing_effect_is_done<D: TestDatabase>(fixture: Fixture<D>) {
    fixture.publish(&[message("order-1", 1, "good"), message("order-1", 2, "good")]).await;
    // Without its table the handler fails and the message is parked.
    let options = Options { batch: 5, idempotence: Idempotence::Handler, ..crate::fixture::options() };
    let running = fixture.consumer(options, plain(insert_order::<D>));
    fixture.settle(2).await;
    fixture.database.run(ORDERS_TABLE).await;
    fixture.database.run("INSERT INTO orders (number) VALUES ('order-1')").await;
    fixture.database.redrive(&DeadLetterFilter::default(), "test").await.unwrap();
    landfall_testkit::eventually(crate::fixture::TIMEOUT, "both letters are done", async || {
        fixture.database.dead_letter_stats().await.unwrap().done == 2
    })
    .await;
    running.stop().await;
    assert!(fixture.database.effects().await.is_empty());
}

async fn checks_wrong_constraint<D: TestDatabase>(context: Context<'_, D>) -> Result<(), Failure> {
    let number = number(&context);
    let inserted = D::execute(&mut *context.connection, "INSERT INTO orders (number) VALUES (?)", &[&number]).await;
    context.unless_there(inserted, "another_constraint").map_err(|failure| failure.with_code(ErrorCode::HANDLER))?;
    Ok(())
}

async fn other_constraint_violation_is_a_failure<D: TestDatabase>(fixture: Fixture<D>) {
    fixture.database.run(ORDERS_TABLE).await;
    fixture.database.run("INSERT INTO orders (number) VALUES ('order-1')").await;
    fixture.publish(&[message("order-1", 1, "good")]).await;
    let running = fixture.consumer(crate::fixture::options(), plain(checks_wrong_constraint::<D>));
    fixture.settle(1).await;
    running.stop().await;
    assert_eq!(fixture.letters().await[0].attempts, 3);
}
