//! Several messages in one transaction, and how a failing one is isolated.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use landfall::consume::{BatchContext, Context, Options, handler_fn, plain};
use landfall::{DeadLetterFilter, ErrorCode, Failure, Message};
use landfall_testkit::eventually;

use crate::database::TestDatabase;
use crate::fixture::{Fixture, TIMEOUT, message, options};
use crate::on_every_database;

on_every_database!(
    hundred_messages_share_a_transaction,
    poison_message_is_isolated_and_its_batch_commits,
    batch_handler_failure_is_bisected_to_one_message,
    swallowed_sql_error_does_not_affect_other_messages,
    stop_finishes_the_batch_and_the_next_member_gets_the_rest,
);

pub(crate) fn batched(batch: usize, concurrency: usize) -> Options {
    Options { batch, concurrency, ..options() }
}

/// Applies a message, then fails as its kind says.
pub(crate) async fn apply<D: TestDatabase>(context: Context<'_, D>) -> Result<(), Failure> {
    D::record(context.connection, context.message).await?;
    match context.message.kind.as_str() {
        "poison" => Err(Failure::park(ErrorCode::new("poison"), "it is poison")),
        "failing" => Err(Failure::retry("it never works")),
        "flaky" if context.attempt < 2 => Err(Failure::retry("it works the second time")),
        "panic" => panic!("it cannot be handled"),
        _ => Ok(()),
    }
}

pub(crate) fn many(count: i64, kind: impl Fn(i64) -> &'static str) -> Vec<Message> {
    (0..count).map(|n| message(&format!("key-{}", n % 7), n, kind(n))).collect()
}

async fn hundred_messages_share_a_transaction<D: TestDatabase>(fixture: Fixture<D>) {
    fixture.publish(&many(250, |_| "good")).await;
    let calls = Arc::new(AtomicUsize::new(0));
    let running = fixture.consumer_of_batches(batched(100, 1), CountingBatches { calls: calls.clone() });
    fixture.effects_become(250).await;
    running.stop().await;
    assert!(calls.load(Ordering::SeqCst) < 10, "{} calls", calls.load(Ordering::SeqCst));
    fixture.all_is_acknowledged().await;
}

async fn poison_message_is_isolated_and_its_batch_commits<D: TestDatabase>(fixture: Fixture<D>) {
    let messages = many(60, |n| match n {
        10 => "poison",
        25 => "flaky",
        40 => "panic",
        _ => "good",
    });
    fixture.publish(&messages).await;
    let running = fixture.consumer(batched(50, 1), plain(apply::<D>));
    fixture.settle(60).await;
    let account = fixture.account().await;
    // 10 belongs to key 3 and holds it: 17, 24, 31, 38, 45, 52, 59 wait. 40 belongs to key 5: 47, 54 wait.
    let sequences = |key: &str| -> Vec<_> {
        account.effects.get(&Some(key.to_owned())).into_iter().flatten().filter_map(|effect| effect.sequence).collect()
    };
    assert_eq!(sequences("key-3"), [3]);
    assert_eq!(sequences("key-5"), [5, 12, 19, 26, 33]);
    assert_eq!(sequences("key-4"), [4, 11, 18, 25, 32, 39, 46, 53]);
    assert_eq!((account.letters[&Some("key-3".into())].len(), account.letters[&Some("key-5".into())].len()), (8, 3));
    assert_eq!(account.letters[&Some("key-3".into())][0].2, "POISON");
    assert_eq!(account.letters[&Some("key-5".into())][0].3, 3, "a panic is retried like any failure");
    running.stop().await;
    fixture.all_is_acknowledged().await;
}

async fn batch_handler_failure_is_bisected_to_one_message<D: TestDatabase>(fixture: Fixture<D>) {
    let messages = many(80, |n| if n == 33 { "poison" } else { "good" });
    fixture.publish(&messages).await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let running = fixture.consumer_of_batches(batched(40, 1), CountingBatches { calls: counted });
    fixture.settle(80).await;
    let account = fixture.account().await;
    let letters = &account.letters[&Some("key-5".into())];
    assert_eq!((letters.len(), letters[0].0.as_str()), (7, messages[33].id.to_string().as_str()));
    assert_eq!(account.effects.values().map(Vec::len).sum::<usize>(), 73);
    assert!(calls.load(Ordering::SeqCst) < 40, "the handler is called for batches: {}", calls.load(Ordering::SeqCst));
    running.stop().await;
    fixture.all_is_acknowledged().await;
}

struct CountingBatches {
    calls: Arc<AtomicUsize>,
}

impl<D: TestDatabase> landfall::consume::BatchHandler<D> for CountingBatches {
    async fn handle<'a>(&'a self, context: BatchContext<'a, D>) -> Result<(), Failure> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        D::record_all(context.connection, context.messages).await?;
        match context.messages.iter().find(|message| message.kind.as_str() == "poison") {
            Some(_) => Err(Failure::park(ErrorCode::new("poison"), "one of them is poison")),
            None => Ok(()),
        }
    }
}

/// PostgreSQL aborts the transaction at the first error, so that the next message of the batch fails without fault.
async fn swallowed_sql_error_does_not_affect_other_messages<D: TestDatabase>(fixture: Fixture<D>) {
    fixture.publish(&many(30, |n| if n == 12 { "sql error" } else { "good" })).await;
    let running = fixture.consumer(
        batched(30, 1),
        handler_fn::<D, _>(|context| {
            Box::pin(async move {
                if context.message.kind.as_str() == "sql error" {
                    let _ = D::failing_statement(&mut *context.connection).await;
                    return Ok(());
                }
                D::record(context.connection, context.message).await?;
                Ok(())
            })
        }),
    );
    // Where an error does not abort the transaction, the message has neither an effect nor a dead letter.
    fixture.settle(if D::ERRORS_BREAK { 30 } else { 29 }).await;
    running.stop().await;
    let parked = fixture.letters().await;
    if D::ERRORS_BREAK {
        // 12, 19 and 26 belong to key 5; the last two wait behind the first.
        assert_eq!(parked.iter().filter_map(|letter| letter.sequence).collect::<Vec<_>>(), [12, 19, 26]);
        assert_eq!(parked[0].attempts, 3);
    } else {
        assert!(parked.is_empty());
    }
    fixture.all_is_acknowledged().await;
}

/// A deferred constraint fails the commit. Retrying it as a database error would never end. Only PostgreSQL has such
/// constraints.
#[tokio::test(flavor = "multi_thread")]
async fn commit_time_constraint_fails_the_message() {
    let Some(fixture) = Fixture::<landfall_postgres::Postgres>::new().await else { return };
    let constraint = "ALTER TABLE effects ADD CONSTRAINT one_each UNIQUE (business_key) DEFERRABLE INITIALLY DEFERRED";
    fixture.database.run(constraint).await;
    let messages: Vec<_> = ["a", "b", "a", "c"].iter().zip(1..).map(|(key, n)| message(key, n, "good")).collect();
    fixture.publish(&messages).await;
    let running = fixture.consumer(batched(10, 1), plain(apply::<landfall_postgres::Postgres>));
    fixture.settle(4).await;
    running.stop().await;
    assert_eq!(fixture.database.effects().await.len(), 3);
    assert_eq!(fixture.letters().await[0].sequence, Some(3));
    fixture.all_is_acknowledged().await;
}

async fn stop_finishes_the_batch_and_the_next_member_gets_the_rest<D: TestDatabase>(fixture: Fixture<D>) {
    fixture.publish(&many(400, |n| if n % 50 == 49 { "flaky" } else { "good" })).await;
    let first = fixture.consumer(batched(20, 2), plain(apply::<D>));
    fixture.effects_become(40).await;
    first.stop().await;
    let second = fixture.consumer(batched(20, 2), plain(apply::<D>));
    fixture.effects_become(400).await;
    second.stop().await;
    let account = fixture.account().await;
    for (key, effects) in account.effects {
        assert!(effects.is_sorted_by_key(|effect| effect.sequence), "{key:?} is out of order: {effects:?}");
    }
    assert_eq!(account.handled, 400);
    fixture.all_is_acknowledged().await;
    eventually(TIMEOUT, "nothing is parked", async || {
        fixture.database.find(&DeadLetterFilter::default(), 1).await.unwrap().is_empty()
    })
    .await;
}
