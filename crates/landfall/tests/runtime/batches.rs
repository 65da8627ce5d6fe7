//! Several messages in one transaction: together while all goes well, apart where one fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use landfall::consume::{BatchContext, Context, Options, handler_fn, plain};
use landfall::{DeadLetterFilter, ErrorCode, Failure, Message};
use landfall_testkit::eventually;

use crate::ground::{Ground, PATIENCE, message, options};
use crate::on_every_database;
use crate::place::Place;

on_every_database!(
    a_hundred_messages_share_a_transaction,
    a_poison_message_leaves_its_batch_and_the_others_commit,
    a_set_based_handler_gets_slices_and_one_that_fails_is_found,
    a_handler_that_breaks_the_transaction_and_says_nothing_harms_nobody_else,
    a_transaction_that_cannot_be_committed_is_the_failure_of_its_message,
    a_stopped_batch_is_finished_and_the_rest_is_for_the_next_member,
);

pub(crate) fn batched(batch: usize, concurrency: usize) -> Options {
    Options { batch, concurrency, ..options() }
}

/// Applies a message, and fails as its kind says.
pub(crate) async fn apply<D: Place>(context: Context<'_, D>) -> Result<(), Failure> {
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

async fn a_hundred_messages_share_a_transaction<D: Place>(ground: Ground<D>) {
    ground.publish(&many(250, |_| "good")).await;
    let calls = Arc::new(AtomicUsize::new(0));
    let running = ground.consumer_of_batches(batched(100, 1), Slices { calls: calls.clone() });
    ground.effects_become(250).await;
    running.stop().await;
    assert!(calls.load(Ordering::SeqCst) < 10, "{} calls", calls.load(Ordering::SeqCst));
    ground.all_is_acknowledged().await;
}

async fn a_poison_message_leaves_its_batch_and_the_others_commit<D: Place>(ground: Ground<D>) {
    let messages = many(60, |n| match n {
        10 => "poison",
        25 => "flaky",
        40 => "panic",
        _ => "good",
    });
    ground.publish(&messages).await;
    let running = ground.consumer(batched(50, 1), plain(apply::<D>));
    ground.settle(60).await;
    let account = ground.account().await;
    // 10 is of key 3, which ends there: 17, 24, 31, 38, 45, 52, 59 wait. 40 is of key 5: 47, 54 wait.
    let sequences = |key: &str| -> Vec<_> {
        account.effects.get(&Some(key.to_owned())).into_iter().flatten().filter_map(|effect| effect.sequence).collect()
    };
    assert_eq!(sequences("key-3"), [3]);
    assert_eq!(sequences("key-5"), [5, 12, 19, 26, 33]);
    assert_eq!(sequences("key-4"), [4, 11, 18, 25, 32, 39, 46, 53]);
    assert_eq!((account.letters[&Some("key-3".into())].len(), account.letters[&Some("key-5".into())].len()), (8, 3));
    assert_eq!(account.letters[&Some("key-3".into())][0].2, "POISON");
    assert_eq!(account.letters[&Some("key-5".into())][0].3, 3, "a panic is tried as often as any failure");
    running.stop().await;
    ground.all_is_acknowledged().await;
}

async fn a_set_based_handler_gets_slices_and_one_that_fails_is_found<D: Place>(ground: Ground<D>) {
    let messages = many(80, |n| if n == 33 { "poison" } else { "good" });
    ground.publish(&messages).await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let running = ground.consumer_of_batches(batched(40, 1), Slices { calls: counted });
    ground.settle(80).await;
    let account = ground.account().await;
    let letters = &account.letters[&Some("key-5".into())];
    assert_eq!((letters.len(), letters[0].0.as_str()), (7, messages[33].id.to_string().as_str()));
    assert_eq!(account.effects.values().map(Vec::len).sum::<usize>(), 73);
    assert!(calls.load(Ordering::SeqCst) < 40, "it is called for slices: {}", calls.load(Ordering::SeqCst));
    running.stop().await;
    ground.all_is_acknowledged().await;
}

struct Slices {
    calls: Arc<AtomicUsize>,
}

impl<D: Place> landfall::consume::BatchHandler<D> for Slices {
    async fn handle<'a>(&'a self, context: BatchContext<'a, D>) -> Result<(), Failure> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        D::record_all(context.connection, context.messages).await?;
        match context.messages.iter().find(|message| message.kind.as_str() == "poison") {
            Some(_) => Err(Failure::park(ErrorCode::new("poison"), "one of them is poison")),
            None => Ok(()),
        }
    }
}

/// PostgreSQL breaks the transaction at the first error; whoever comes next fails, and is innocent.
async fn a_handler_that_breaks_the_transaction_and_says_nothing_harms_nobody_else<D: Place>(ground: Ground<D>) {
    ground.publish(&many(30, |n| if n == 12 { "blunder" } else { "good" })).await;
    let running = ground.consumer(
        batched(30, 1),
        handler_fn::<D, _>(|context| {
            Box::pin(async move {
                if context.message.kind.as_str() == "blunder" {
                    let _ = D::blunder(&mut *context.connection).await;
                    return Ok(());
                }
                D::record(context.connection, context.message).await?;
                Ok(())
            })
        }),
    );
    // Where an error breaks nothing, the blunder had no effect and no letter.
    ground.settle(if D::ERRORS_BREAK { 30 } else { 29 }).await;
    running.stop().await;
    let parked = ground.letters().await;
    if D::ERRORS_BREAK {
        // 12 is of key 5, and so are 19 and 26, which wait behind it.
        assert_eq!(parked.iter().filter_map(|letter| letter.sequence).collect::<Vec<_>>(), [12, 19, 26]);
        assert_eq!(parked[0].attempts, 3);
    } else {
        assert!(parked.is_empty());
    }
    ground.all_is_acknowledged().await;
}

/// A constraint that is checked at the end speaks only at the commit. Waiting for the database would not help.
async fn a_transaction_that_cannot_be_committed_is_the_failure_of_its_message<D: Place>(ground: Ground<D>) {
    if !D::ERRORS_BREAK {
        return;
    }
    let constraint = "ALTER TABLE effects ADD CONSTRAINT one_each UNIQUE (business_key) DEFERRABLE INITIALLY DEFERRED";
    ground.database.run(constraint).await;
    let messages: Vec<_> = ["a", "b", "a", "c"].iter().zip(1..).map(|(key, n)| message(key, n, "good")).collect();
    ground.publish(&messages).await;
    let running = ground.consumer(batched(10, 1), plain(apply::<D>));
    ground.settle(4).await;
    running.stop().await;
    assert_eq!(ground.database.effects().await.len(), 3);
    assert_eq!(ground.letters().await[0].sequence, Some(3));
    ground.all_is_acknowledged().await;
}

async fn a_stopped_batch_is_finished_and_the_rest_is_for_the_next_member<D: Place>(ground: Ground<D>) {
    ground.publish(&many(400, |n| if n % 50 == 49 { "flaky" } else { "good" })).await;
    let first = ground.consumer(batched(20, 2), plain(apply::<D>));
    ground.effects_become(40).await;
    first.stop().await;
    let second = ground.consumer(batched(20, 2), plain(apply::<D>));
    ground.effects_become(400).await;
    second.stop().await;
    let account = ground.account().await;
    for (key, effects) in account.effects {
        assert!(effects.is_sorted_by_key(|effect| effect.sequence), "{key:?} is out of order: {effects:?}");
    }
    assert_eq!(account.handled, 400);
    ground.all_is_acknowledged().await;
    eventually(PATIENCE, "nothing is parked", async || {
        ground.database.find(&DeadLetterFilter::default(), 1).await.unwrap().is_empty()
    })
    .await;
}
