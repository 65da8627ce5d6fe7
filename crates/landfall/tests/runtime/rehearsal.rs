//! Rehearsals: the handler runs as in a redrive, and leaves nothing behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use landfall::consume::{Context, already_done, with_state};
use landfall::{
    DeadLetter, DeadLetterFilter, DeadLetterId, DeadLetterStatus, ErrorCode, Failure, Message, RehearsalResult,
    Rehearsed, TopicName,
};
use landfall_mysql::MySql;
use landfall_postgres::Postgres;
use landfall_testkit::eventually;

use crate::database::TestDatabase;
use crate::fixture::{Fixture, TIMEOUT, message};
use crate::on_every_database;

on_every_database!(rehearsal_predicts_the_redrive_and_leaves_nothing);

/// What the handler depends on.
#[derive(Debug, Default)]
struct World {
    is_repaired: AtomicBool,
}

/// The kind of a message says what the handler does with it once the world is repaired.
async fn act<D: TestDatabase>(world: &Arc<World>, mut context: Context<'_, D>) -> Result<(), Failure> {
    if !world.is_repaired.load(Ordering::SeqCst) {
        return Err(Failure::park(ErrorCode::DEPENDENCY, "the bank is closed"));
    }
    D::record(&mut *context.connection, context.message).await?;
    context.enqueue(&Message::new(TopicName::new("receipts").unwrap(), "paid")).await?;
    match context.message.kind.as_str() {
        "broken" => Err(Failure::park(ErrorCode::VALIDATION, "no such account")),
        "done" => Err(already_done("paid before")),
        "panics" => panic!("a bug"),
        "swallows" => {
            match D::ERRORS_BREAK {
                true => drop(D::failing_statement(context.connection).await),
                // As a deadlock does.
                false => drop(D::execute(context.connection, "ROLLBACK", &[]).await),
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn handler<D: TestDatabase>(world: &Arc<World>) -> impl landfall::consume::Handler<D> {
    with_state(world.clone(), act::<D>)
}

/// Parks these messages, in order.
async fn park<D: TestDatabase>(fixture: &Fixture<D>, world: &Arc<World>, messages: &[Message]) -> Vec<DeadLetter> {
    fixture.publish(messages).await;
    let running = fixture.consumer_with_rehearsals(handler::<D>(world));
    fixture.settle(messages.len()).await;
    fixture.is_drained().await;
    running.stop().await;
    let mut letters = fixture.letters().await;
    letters.sort_by_key(|letter| messages.iter().position(|message| message.id == letter.message_id));
    letters
}

/// Asks for a rehearsal and returns the result of each letter, in the order of `letters`.
async fn rehearse<D: TestDatabase>(fixture: &Fixture<D>, letters: &[DeadLetter]) -> Vec<RehearsalResult> {
    let ids: Vec<DeadLetterId> = letters.iter().map(|letter| letter.id).collect();
    let id = fixture.database.request_rehearsal(&ids, "maria").await.unwrap();
    eventually(TIMEOUT, "the rehearsal", async || {
        let results = fixture.database.rehearsal(id).await.unwrap();
        results.len() == ids.len() && results.iter().all(|letter| letter.result.is_some())
    })
    .await;
    let results = fixture.database.rehearsal(id).await.unwrap();
    let result_of = |id: &DeadLetterId| results.iter().find(|letter| letter.id == *id).unwrap().result.clone().unwrap();
    ids.iter().map(result_of).collect()
}

fn outcomes(results: &[RehearsalResult]) -> Vec<Rehearsed> {
    results.iter().map(|result| result.outcome).collect()
}

async fn rehearsal_predicts_the_redrive_and_leaves_nothing<D: TestDatabase>(fixture: Fixture<D>) {
    let world = Arc::new(World::default());
    let kinds = ["good", "broken", "done", "panics"];
    let messages: Vec<_> = kinds.iter().map(|kind| message(kind, 1, kind)).collect();
    let letters = park(&fixture, &world, &messages).await;
    let running = fixture.consumer_with_rehearsals(handler::<D>(&world));

    let before = rehearse(&fixture, &letters).await;
    for (result, letter) in before.iter().zip(&letters) {
        assert_eq!(result.outcome, Rehearsed::Fails);
        assert_eq!(result.fingerprint.as_deref(), Some(letter.fingerprint.as_str()), "it fails as before");
    }

    world.is_repaired.store(true, Ordering::SeqCst);
    let predicted = rehearse(&fixture, &letters).await;
    assert_eq!(
        outcomes(&predicted),
        [Rehearsed::Succeeds, Rehearsed::Fails, Rehearsed::Duplicate, Rehearsed::Fails],
        "{predicted:?}"
    );
    assert_eq!(predicted[1].error_code.as_deref(), Some("VALIDATION_ERROR"));
    assert_eq!(predicted[1].error.as_deref(), Some("no such account"));
    assert_ne!(predicted[1].fingerprint.as_deref(), Some(letters[1].fingerprint.as_str()), "it fails in a new way");
    assert_eq!(predicted[3].error_code.as_deref(), Some("HANDLER_PANIC"));

    assert!(fixture.database.effects().await.is_empty(), "a rehearsal has no effect");
    assert_eq!(fixture.database.number("SELECT COUNT(*) FROM landfall_outbox").await, 0);
    let now = fixture.letters().await;
    assert!(now.iter().all(|letter| letter.status == DeadLetterStatus::Parked && letter.attempts == 1), "{now:?}");
    assert_eq!(fixture.database.number("SELECT COUNT(*) FROM landfall_audit WHERE action = 'rehearse'").await, 8);

    fixture.database.redrive(&DeadLetterFilter::default(), "maria").await.unwrap();
    eventually(TIMEOUT, "the redrive", async || {
        let letters = fixture.letters().await;
        letters.iter().all(|letter| letter.status != DeadLetterStatus::Redriving)
    })
    .await;
    running.stop().await;
    let mut happened = fixture.letters().await;
    happened.sort_by_key(|letter| letter.id);
    let statuses: Vec<_> = letters
        .iter()
        .map(|letter| happened.iter().find(|now| now.id == letter.id).map(|now| now.status).unwrap())
        .collect();
    use DeadLetterStatus::{Done, Parked};
    assert_eq!(statuses, [Done, Parked, Done, Parked], "the redrive does what was predicted");
    assert_eq!(fixture.database.effects().await.len(), 1);
}

/// The redrive would be refused at its commit.
async fn swallowed_error_is_predicted<D: TestDatabase>(fixture: Fixture<D>) {
    let world = Arc::new(World::default());
    let letters = park(&fixture, &world, &[message("a", 1, "swallows")]).await;
    let running = fixture.consumer_with_rehearsals(handler::<D>(&world));
    world.is_repaired.store(true, Ordering::SeqCst);
    let predicted = rehearse(&fixture, &letters).await;
    running.stop().await;
    assert_eq!(outcomes(&predicted), [Rehearsed::Fails], "{predicted:?}");
    assert!(fixture.database.effects().await.is_empty(), "a rehearsal has no effect");
}

#[tokio::test(flavor = "multi_thread")]
async fn swallowed_sql_error_is_predicted_on_postgresql() {
    let Some(fixture) = Fixture::<Postgres>::new().await else { return };
    swallowed_error_is_predicted(fixture).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn swallowed_sql_error_is_predicted_on_mariadb() {
    let Some(fixture) = Fixture::<MySql>::new().await else { return };
    swallowed_error_is_predicted(fixture).await;
}

/// PostgreSQL checks a deferred constraint at the commit, which a rehearsal never reaches.
#[tokio::test(flavor = "multi_thread")]
async fn deferred_constraint_is_predicted_on_postgresql() {
    let Some(fixture) = Fixture::<Postgres>::new().await else { return };
    let world = Arc::new(World::default());
    let letters = park(&fixture, &world, &[message("a", 1, "good"), message("b", 1, "good")]).await;
    let unique = "ALTER TABLE effects ADD CONSTRAINT once UNIQUE (sequence) DEFERRABLE INITIALLY DEFERRED";
    fixture.database.run(unique).await;
    fixture.database.run("INSERT INTO effects (id, sequence) VALUES ('an effect', 1)").await;
    let running = fixture.consumer_with_rehearsals(handler::<Postgres>(&world));
    world.is_repaired.store(true, Ordering::SeqCst);
    let predicted = rehearse(&fixture, &letters).await;
    running.stop().await;
    assert_eq!(outcomes(&predicted), [Rehearsed::Fails; 2], "{predicted:?}");
}
