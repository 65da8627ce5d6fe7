//! The consumer against a real inbox: effects once and in order, retries, parking, redrive.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::fixture::{Fixture, TIMEOUT, message, topic};
use futures_util::future::BoxFuture;
use landfall::consume::{Context, handler_fn};
use landfall::retry::{self, BudgetOptions, Dependency};
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

/// Applies every message and, while the switch is on, fails those that begin with `poison` afterwards: their writes
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
async fn ten_deliveries_take_effect_once() {
    let fixture = Fixture::new().await;
    let copies = vec![message("a", 1); 10];
    fixture.publish(&copies).await;
    fixture.publish(&[message("a", 2)]).await;
    fixture.consumer(plain);
    fixture.effects_become(&["a1", "a2"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_least_once_message_takes_effect_for_every_delivery() {
    let fixture = Fixture::new().await;
    let twice = message("a", 1).with_mode(Mode::AtLeastOnce);
    fixture.publish(&[twice.clone(), twice]).await;
    fixture.consumer(plain);
    fixture.effects_become(&["a1", "a1"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_attempts_are_rolled_back_and_retried() {
    let fixture = Fixture::new().await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    fixture.publish(&[message("a", 1)]).await;
    fixture.consumer(handler_fn::<Sqlite, _>(move |context| {
        let attempt = context.attempt;
        counted.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            apply(context).await?;
            if attempt < 3 { Err(Failure::retry("not yet")) } else { Ok(()) }
        })
    }));
    fixture.effects_become(&["a1"]).await;
    assert_eq!(calls.load(Ordering::SeqCst), 3);
    assert_eq!(fixture.parked().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn parked_key_drains_in_order_after_a_redrive() {
    let fixture = Fixture::new().await;
    let broken = Arc::new(AtomicBool::new(true));
    let poison = Message { payload: "poison1".into(), ..message("a", 1) };
    fixture.publish(&[poison, message("a", 2), message("b", 1), message("a", 3)]).await;
    fixture.consumer(failing(broken.clone(), || Failure::retry("no such stock")));
    fixture.effects_become(&["b1"]).await;
    let waiting = async || fixture.database.dead_letter_stats().await.unwrap().waiting;
    eventually(TIMEOUT, "the successors queue", async || waiting().await == 2).await;

    let found = fixture.database.find(&DeadLetterFilter::default(), 10).await.unwrap();
    assert_eq!((found[0].error_code.as_str(), found[0].attempts), ("HANDLER_ERROR", 3));

    broken.store(false, Ordering::SeqCst);
    fixture.database.redrive(&DeadLetterFilter::default(), "test").await.unwrap();
    fixture.effects_become(&["b1", "poison1", "a2", "a3"]).await;
    fixture.publish(&[message("a", 4)]).await;
    fixture.effects_become(&["b1", "poison1", "a2", "a3", "a4"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redrive_takes_nothing_from_the_retry_budget() {
    let fixture = Fixture::new().await;
    let budget = BudgetOptions { ratio: 0.0, floor: 0, window: Duration::from_secs(3600), ..Default::default() };
    let gateway = Dependency::new("gateway", retry::Options { budget, ..Default::default() }).unwrap();
    let broken = Arc::new(AtomicBool::new(true));
    let is_broken = broken.clone();
    let messages: Vec<_> = (0..120).map(|n| message(&format!("key-{n}-"), 1)).collect();
    fixture.publish(&messages).await;
    fixture.consumer(handler_fn::<Sqlite, _>(move |context| {
        let (gateway, is_broken) = (gateway.clone(), is_broken.clone());
        Box::pin(async move {
            let call = async || match is_broken.load(Ordering::SeqCst) {
                true => Err(Failure::park(ErrorCode::new("broken"), "not deployed yet")),
                false => Ok(()),
            };
            gateway.attempt(context.attempt_since_redrive, call).await?;
            apply(context).await
        })
    }));
    eventually(TIMEOUT, "all are parked", async || fixture.parked().await == 120).await;
    broken.store(false, Ordering::SeqCst);
    fixture.database.redrive(&DeadLetterFilter::default(), "test").await.unwrap();
    eventually(TIMEOUT, "all are redriven", async || fixture.effects().await.len() == 120).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redriven_message_that_fails_again_is_parked_again() {
    let fixture = Fixture::new().await;
    let broken = Arc::new(AtomicBool::new(true));
    let poison = Message { payload: "poison1".into(), ..message("a", 1) };
    fixture.publish(&[poison, message("a", 2)]).await;
    fixture.consumer(failing(broken, || Failure::park(ErrorCode::new("unknown sku"), "no such stock")));
    eventually(TIMEOUT, "parked", async || fixture.parked().await == 1).await;
    fixture.database.redrive(&DeadLetterFilter::default(), "test").await.unwrap();
    eventually(TIMEOUT, "parked again", async || {
        let found = fixture.database.find(&DeadLetterFilter::default(), 10).await.unwrap();
        found[0].attempts == 2 && fixture.parked().await == 1
    })
    .await;
    assert_eq!(fixture.effects().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn handler_panic_is_a_failure_of_its_message() {
    let fixture = Fixture::new().await;
    fixture.publish(&[message("a", 1), message("b", 1)]).await;
    fixture.consumer(handler_fn::<Sqlite, _>(|context| {
        assert!(!context.message.payload.starts_with(b"a"), "cannot handle it");
        Box::pin(apply(context))
    }));
    eventually(TIMEOUT, "parked", async || fixture.parked().await == 1).await;
    fixture.effects_become(&["b1"]).await;
    let found = fixture.database.find(&DeadLetterFilter::default(), 10).await.unwrap();
    assert_eq!((found[0].error_code.as_str(), found[0].error.as_str()), ("HANDLER_PANIC", "cannot handle it"));
}

#[tokio::test(flavor = "multi_thread")]
async fn message_enqueued_by_a_handler_is_published_with_its_effect() {
    let fixture = Fixture::new().await;
    fixture.publish(&[message("a", 1)]).await;
    fixture.relay();
    fixture.consumer(handler_fn::<Sqlite, _>(|mut context| {
        Box::pin(async move {
            if context.message.sequence == Some(1) {
                context.enqueue(&message("a", 2)).await?;
            }
            apply(context).await
        })
    }));
    fixture.effects_become(&["a1", "a2"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keyless_messages_do_not_wait_for_each_other() {
    let fixture = Fixture::new().await;
    let keyless = |name: &'static str| Message::new(topic(), name);
    fixture.publish(&[keyless("poison"), keyless("next")]).await;
    fixture.consumer(failing(Arc::new(AtomicBool::new(true)), || Failure::retry("never")));
    fixture.effects_become(&["next"]).await;
    eventually(TIMEOUT, "parked", async || fixture.parked().await == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_finishes_running_handlers_and_redelivers_the_rest() {
    let fixture = Fixture::new().await;
    let messages: Vec<_> = (1..=500).map(|n| message("a", n)).collect();
    fixture.publish(&messages).await;
    let first = fixture.consumer(plain);
    eventually(TIMEOUT, "some effects", async || !fixture.effects().await.is_empty()).await;
    fixture.stop.cancel();
    first.await.unwrap().unwrap();

    let mut fixture = fixture;
    fixture.stop = Default::default();
    fixture.consumer(plain);
    let expected: Vec<_> = (1..=500).map(|n| format!("a{n}")).collect();
    fixture.effects_become(&expected.iter().map(String::as_str).collect::<Vec<_>>()).await;
}
