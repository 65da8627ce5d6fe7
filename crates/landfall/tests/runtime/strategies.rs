//! Every way to be idempotent under copies, ten of each, handled by two members at the same time.

use std::collections::BTreeMap;

use landfall::consume::{Context, Handler, Idempotence, Options, SequenceCheck, changed, plain};
use landfall::{Backoff, DeadLetterFilter, ErrorCode, Failure, Message};
use rand::seq::SliceRandom;

use crate::ground::{Ground, QUICK, message};
use crate::on_every_database;
use crate::place::Place;

on_every_database!(
    the_inbox_turns_copies_away,
    a_unique_constraint_turns_copies_away,
    a_conditional_update_turns_copies_away,
    an_upsert_turns_copies_away,
    a_guard_row_turns_copies_away,
    a_version_turns_copies_away,
    a_letter_whose_effect_is_there_is_done_when_it_is_redriven,
    a_violation_of_another_constraint_is_a_failure,
);

const ORDERS: i64 = 12;
const COPIES: usize = 10;

/// Copies of every order in any order. With `new_ids` only their content says that they are copies.
fn copies(new_ids: bool) -> Vec<Message> {
    let mut copies = Vec::new();
    for order in 1..=ORDERS {
        let original = message(&format!("order-{order}"), 1, "good");
        for _ in 0..COPIES {
            copies.push(if new_ids { message(&format!("order-{order}"), 1, "good") } else { original.clone() });
        }
    }
    copies.shuffle(&mut rand::rng());
    copies
}

fn number(context: &Context<'_, impl Place>) -> String {
    context.message.key.as_ref().map(ToString::to_string).unwrap()
}

/// Deadlocks between members are retried; they are not what is tested here.
fn patient(batch: usize, idempotence: Idempotence) -> Options {
    let backoff = Backoff { max_attempts: 50, ..QUICK };
    Options { batch, idempotence, concurrency: 4, backoff, ..crate::ground::options() }
}

/// Two members, one with batches, on the same copies: each order takes effect once, and nothing is left.
async fn once<D: Place, H: Handler<D>>(ground: &Ground<D>, messages: &[Message], options: Options, handler: fn() -> H) {
    ground.publish(messages).await;
    let members = [1, 20].map(|batch| ground.consumer(Options { batch, ..options.clone() }, handler()));
    ground.effects_become(ORDERS as usize).await;
    ground.is_drained().await;
    for member in members {
        member.stop().await;
    }
    let mut effects: BTreeMap<_, usize> = BTreeMap::new();
    for effect in ground.database.effects().await {
        *effects.entry(effect.key).or_default() += 1;
    }
    assert_eq!(effects.len(), ORDERS as usize);
    assert!(effects.values().all(|count| *count == 1), "{effects:?}");
    assert!(ground.letters().await.is_empty(), "{:?}", ground.letters().await);
    ground.all_is_acknowledged().await;
}

async fn record<D: Place>(context: Context<'_, D>) -> Result<(), Failure> {
    D::record(context.connection, context.message).await?;
    Ok(())
}

async fn the_inbox_turns_copies_away<D: Place>(ground: Ground<D>) {
    once(&ground, &copies(false), patient(1, Idempotence::Inbox), || plain(record::<D>)).await;
}

/// What SQLite says is the columns; the others name the constraint.
pub(crate) fn constraint<D: Place>() -> &'static str {
    if std::any::type_name::<D>().contains("Sqlite") { "orders.number" } else { "orders_number" }
}

async fn insert_order<D: Place>(context: Context<'_, D>) -> Result<(), Failure> {
    let number = number(&context);
    // The effect comes first: it must be taken back when the order turns out to be there.
    D::record(&mut *context.connection, context.message).await?;
    let inserted = D::execute(&mut *context.connection, "INSERT INTO orders (number) VALUES (?)", &[&number]).await;
    context.unless_there(inserted, constraint::<D>())?;
    Ok(())
}

const ORDERS_TABLE: &str =
    "CREATE TABLE orders (number VARCHAR(40) NOT NULL, CONSTRAINT orders_number UNIQUE (number))";

async fn a_unique_constraint_turns_copies_away<D: Place>(ground: Ground<D>) {
    ground.database.run(ORDERS_TABLE).await;
    once(&ground, &copies(true), patient(1, Idempotence::Handler), || plain(insert_order::<D>)).await;
    assert_eq!(ground.database.number("SELECT COUNT(*) FROM landfall_inbox").await, 0, "no row is written for nothing");
}

async fn ship<D: Place>(context: Context<'_, D>) -> Result<(), Failure> {
    let number = number(&context);
    let update = "UPDATE shipments SET state = 'shipped' WHERE number = ? AND state = 'open'";
    changed(D::execute(&mut *context.connection, update, &[&number]).await?)?;
    record(context).await
}

async fn a_conditional_update_turns_copies_away<D: Place>(ground: Ground<D>) {
    ground.database.run("CREATE TABLE shipments (number VARCHAR(40) PRIMARY KEY, state VARCHAR(10) NOT NULL)").await;
    for order in 1..=ORDERS {
        ground.database.run(&format!("INSERT INTO shipments VALUES ('order-{order}', 'open')")).await;
    }
    once(&ground, &copies(true), patient(1, Idempotence::Handler), || plain(ship::<D>)).await;
}

async fn upsert<D: Place>(context: Context<'_, D>) -> Result<(), Failure> {
    let number = number(&context);
    let insert = match std::any::type_name::<D>().contains("MySql") {
        true => "INSERT IGNORE INTO orders (number) VALUES (?)",
        false => "INSERT INTO orders (number) VALUES (?) ON CONFLICT DO NOTHING",
    };
    changed(D::execute(&mut *context.connection, insert, &[&number]).await?)?;
    record(context).await
}

async fn an_upsert_turns_copies_away<D: Place>(ground: Ground<D>) {
    ground.database.run(ORDERS_TABLE).await;
    once(&ground, &copies(true), patient(1, Idempotence::Handler), || plain(upsert::<D>)).await;
}

async fn guarded<D: Place>(mut context: Context<'_, D>) -> Result<(), Failure> {
    let number = number(&context);
    context.first_time("order", &number).await?;
    record(context).await
}

async fn a_guard_row_turns_copies_away<D: Place>(ground: Ground<D>) {
    once(&ground, &copies(true), patient(1, Idempotence::Inbox), || plain(guarded::<D>)).await;
}

async fn a_version_turns_copies_away<D: Place>(ground: Ground<D>) {
    ground.publish(&copies(true)).await;
    let members = [1, 20].map(|batch| {
        let options = patient(batch, Idempotence::Handler);
        ground.consumer_in_sequence(options, SequenceCheck::Newest, plain(record::<D>))
    });
    ground.effects_become(ORDERS as usize).await;
    ground.is_drained().await;
    for member in members {
        member.stop().await;
    }
    assert_eq!(ground.database.effects().await.len(), ORDERS as usize);
    ground.all_is_acknowledged().await;
}

/// The handler could not be reached by the time somebody did its work by hand; redriving it must not do it again.
async fn a_letter_whose_effect_is_there_is_done_when_it_is_redriven<D: Place>(ground: Ground<D>) {
    ground.publish(&[message("order-1", 1, "good"), message("order-1", 2, "good")]).await;
    // Without its table the handler fails, and the message is parked.
    let options = Options { batch: 5, idempotence: Idempotence::Handler, ..crate::ground::options() };
    let running = ground.consumer(options, plain(insert_order::<D>));
    ground.settle(2).await;
    ground.database.run(ORDERS_TABLE).await;
    ground.database.run("INSERT INTO orders (number) VALUES ('order-1')").await;
    ground.database.redrive(&DeadLetterFilter::default(), "test").await.unwrap();
    landfall_testkit::eventually(crate::ground::PATIENCE, "both letters are done", async || {
        ground.database.dead_letter_stats().await.unwrap().done == 2
    })
    .await;
    running.stop().await;
    assert!(ground.database.effects().await.is_empty());
}

async fn mistaken<D: Place>(context: Context<'_, D>) -> Result<(), Failure> {
    let number = number(&context);
    let inserted = D::execute(&mut *context.connection, "INSERT INTO orders (number) VALUES (?)", &[&number]).await;
    context.unless_there(inserted, "another_constraint").map_err(|failure| failure.with_code(ErrorCode::HANDLER))?;
    Ok(())
}

async fn a_violation_of_another_constraint_is_a_failure<D: Place>(ground: Ground<D>) {
    ground.database.run(ORDERS_TABLE).await;
    ground.database.run("INSERT INTO orders (number) VALUES ('order-1')").await;
    ground.publish(&[message("order-1", 1, "good")]).await;
    let running = ground.consumer(crate::ground::options(), plain(mistaken::<D>));
    ground.settle(1).await;
    running.stop().await;
    assert_eq!(ground.letters().await[0].attempts, 3);
}
