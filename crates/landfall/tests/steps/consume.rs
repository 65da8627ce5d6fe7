//! The consumer against a real inbox: once, in order, retried, parked, redriven.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::stage::{PATIENCE, Stage, message, topic};
use futures_util::future::BoxFuture;
use landfall::consume::{Context, handler_fn};
use landfall::{DeadLetterFilter, DeadLetters, ErrorCode, Failure, Message, Mode};
use landfall_sqlite::Sqlite;
use landfall_testkit::eventually;

async fn apply(context: Context<'_, Sqlite>) -> Result<(), Failure> {
    let name = String::from_utf8(context.message.payload.to_vec())?;
    sqlx::query("INSERT INTO effects VALUES (?)").bind(name).execute(&mut *context.connection).await?;
    Ok(())
}

fn plain(context: Context<'_, Sqlite>) -> BoxFuture<'_, Result<(), Failure>> {
    Box::pin(apply(context))
}

/// Applies every message, and fails those that begin with `poison` afterwards, while the switch is on: what it wrote
/// must be rolled back.
fn failing(
    broken: Arc<AtomicBool>,
    failure: fn() -> Failure,
) -> impl for<'a> Fn(Context<'a, Sqlite>) -> BoxFuture<'a, Result<(), Failure>> + Send + Sync + 'static {
    move |context| {
        let fails = broken.load(Ordering::SeqCst) && context.message.payload.starts_with(b"poison");
        Box::pin(async move {
            apply(context).await?;
            if fails { Err(failure()) } else { Ok(()) }
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_delivered_ten_times_takes_effect_once() {
    let stage = Stage::new().await;
    let copies = vec![message("a", 1); 10];
    stage.publish(&copies).await;
    stage.publish(&[message("a", 2)]).await;
    stage.consumer(plain);
    stage.effects_become(&["a1", "a2"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_at_least_once_message_takes_effect_for_every_delivery() {
    let stage = Stage::new().await;
    let twice = message("a", 1).with_mode(Mode::AtLeastOnce);
    stage.publish(&[twice.clone(), twice]).await;
    stage.consumer(plain);
    stage.effects_become(&["a1", "a1"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_message_is_retried_and_leaves_nothing_of_its_failed_tries() {
    let stage = Stage::new().await;
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = tries.clone();
    stage.publish(&[message("a", 1)]).await;
    stage.consumer(handler_fn::<Sqlite, _>(move |context| {
        let attempt = context.attempt;
        counted.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            apply(context).await?;
            if attempt < 3 { Err(Failure::retry("not yet")) } else { Ok(()) }
        })
    }));
    stage.effects_become(&["a1"]).await;
    assert_eq!(tries.load(Ordering::SeqCst), 3);
    assert_eq!(stage.parked().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poison_message_is_parked_holds_its_key_and_drains_in_order_after_a_redrive() {
    let stage = Stage::new().await;
    let broken = Arc::new(AtomicBool::new(true));
    let poison = Message { payload: "poison1".into(), ..message("a", 1) };
    stage.publish(&[poison, message("a", 2), message("b", 1), message("a", 3)]).await;
    stage.consumer(failing(broken.clone(), || Failure::retry("no such stock")));
    stage.effects_become(&["b1"]).await;
    let waiting = async || stage.database.dead_letter_stats().await.unwrap().waiting;
    eventually(PATIENCE, "the successors queue", async || waiting().await == 2).await;

    let found = stage.database.find(&DeadLetterFilter::default(), 10).await.unwrap();
    assert_eq!((found[0].error_code.as_str(), found[0].attempts), ("HANDLER_ERROR", 3));

    broken.store(false, Ordering::SeqCst);
    stage.database.redrive(&DeadLetterFilter::default(), "test").await.unwrap();
    stage.effects_become(&["b1", "poison1", "a2", "a3"]).await;
    stage.publish(&[message("a", 4)]).await;
    stage.effects_become(&["b1", "poison1", "a2", "a3", "a4"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redriven_message_that_fails_again_is_parked_again_with_its_successors() {
    let stage = Stage::new().await;
    let broken = Arc::new(AtomicBool::new(true));
    let poison = Message { payload: "poison1".into(), ..message("a", 1) };
    stage.publish(&[poison, message("a", 2)]).await;
    stage.consumer(failing(broken, || Failure::park(ErrorCode::new("unknown sku"), "no such stock")));
    eventually(PATIENCE, "parked", async || stage.parked().await == 1).await;
    stage.database.redrive(&DeadLetterFilter::default(), "test").await.unwrap();
    eventually(PATIENCE, "parked again", async || {
        let found = stage.database.find(&DeadLetterFilter::default(), 10).await.unwrap();
        found[0].attempts == 2 && stage.parked().await == 1
    })
    .await;
    assert_eq!(stage.effects().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_panics_is_a_failure_and_the_others_go_on() {
    let stage = Stage::new().await;
    stage.publish(&[message("a", 1), message("b", 1)]).await;
    stage.consumer(handler_fn::<Sqlite, _>(|context| {
        assert!(!context.message.payload.starts_with(b"a"), "cannot handle it");
        Box::pin(apply(context))
    }));
    eventually(PATIENCE, "parked", async || stage.parked().await == 1).await;
    stage.effects_become(&["b1"]).await;
    let found = stage.database.find(&DeadLetterFilter::default(), 10).await.unwrap();
    assert_eq!((found[0].error_code.as_str(), found[0].error.as_str()), ("HANDLER_PANIC", "cannot handle it"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_sent_by_a_handler_goes_out_with_its_effect() {
    let stage = Stage::new().await;
    stage.publish(&[message("a", 1)]).await;
    stage.relay();
    stage.consumer(handler_fn::<Sqlite, _>(|mut context| {
        Box::pin(async move {
            if context.message.sequence == Some(1) {
                context.enqueue(&message("a", 2)).await?;
            }
            apply(context).await
        })
    }));
    stage.effects_become(&["a1", "a2"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_without_a_key_wait_for_nobody() {
    let stage = Stage::new().await;
    let keyless = |name: &'static str| Message::new(topic(), name);
    stage.publish(&[keyless("poison"), keyless("next")]).await;
    stage.consumer(failing(Arc::new(AtomicBool::new(true)), || Failure::retry("never")));
    stage.effects_become(&["next"]).await;
    eventually(PATIENCE, "parked", async || stage.parked().await == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_finishes_what_runs_and_the_next_member_gets_the_rest() {
    let stage = Stage::new().await;
    let messages: Vec<_> = (1..=500).map(|n| message("a", n)).collect();
    stage.publish(&messages).await;
    let first = stage.consumer(plain);
    eventually(PATIENCE, "some effects", async || !stage.effects().await.is_empty()).await;
    stage.stop.cancel();
    first.await.unwrap().unwrap();

    let mut stage = stage;
    stage.stop = Default::default();
    stage.consumer(plain);
    let expected: Vec<_> = (1..=500).map(|n| format!("a{n}")).collect();
    stage.effects_become(&expected.iter().map(String::as_str).collect::<Vec<_>>()).await;
}
