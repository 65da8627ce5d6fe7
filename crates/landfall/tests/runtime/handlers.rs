//! Typed handlers, and handlers in tower layers.

use std::time::Duration;

use landfall::consume::{Context, Options, layered, plain, typed};
use landfall::{Backoff, Failure, Message};
use landfall_sqlite::Sqlite;
use serde::Deserialize;
use tower::limit::ConcurrencyLimitLayer;
use tower::timeout::TimeoutLayer;

use crate::database::TestDatabase;
use crate::fixture::{Fixture, QUICK, message, options};

#[derive(Debug, Deserialize)]
struct OrderPlaced {
    sku: String,
    quantity: u32,
}

async fn place_order(context: Context<'_, Sqlite>, order: OrderPlaced) -> Result<(), Failure> {
    assert_eq!((order.sku.as_str(), order.quantity), ("book", 2));
    Sqlite::record(context.connection, context.message).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn typed_handler_parks_an_invalid_payload_with_the_reason() {
    let fixture = Fixture::<Sqlite>::new().await.unwrap();
    let with = |key, payload: &'static str| Message { payload: payload.into(), ..message(key, 1, "OrderPlaced") };
    fixture.publish(&[with("a", r#"{"sku": "book", "quantity": 2}"#), with("b", r#"{"sku": "book"}"#)]).await;
    let running = fixture.consumer(options(), typed(place_order));
    fixture.settle(2).await;
    running.stop().await;
    assert_eq!(fixture.database.effects().await.len(), 1);
    let letter = &fixture.letters().await[0];
    assert_eq!((letter.error_code.as_str(), letter.attempts), ("VALIDATION_ERROR", 1));
    assert_eq!(letter.error, "the payload is not a valid OrderPlaced: missing field `quantity` at line 1 column 15");
}

/// Hangs on its first attempt.
async fn hangs_once(context: Context<'_, Sqlite>) -> Result<(), Failure> {
    Sqlite::record(&mut *context.connection, context.message).await?;
    if context.attempt == 1 {
        std::future::pending::<()>().await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn tower_timeout_and_limit_layers_wrap_a_handler() {
    let fixture = Fixture::<Sqlite>::new().await.unwrap();
    fixture.publish(&[message("a", 1, "good"), message("b", 1, "good")]).await;
    let layers = (ConcurrencyLimitLayer::new(1), TimeoutLayer::new(Duration::from_millis(30)));
    let handler = layered(layers, plain(hangs_once));
    // On a slow machine later attempts may time out too.
    let options = Options { backoff: Backoff { max_attempts: 1000, ..QUICK }, ..options() };
    let running = fixture.consumer(options, handler);
    fixture.effects_become(2).await;
    running.stop().await;
    assert_eq!(fixture.database.effects().await.len(), 2, "attempts that timed out are rolled back");
    fixture.all_is_acknowledged().await;
}

async fn refusing(context: Context<'_, Sqlite>) -> Result<(), Failure> {
    let code = landfall::ErrorCode::new("no such sku");
    Sqlite::record(context.connection, context.message).await?;
    Err(Failure::park(code, "it is unknown"))
}

#[tokio::test(flavor = "multi_thread")]
async fn handler_failure_passes_through_layers_unchanged() {
    let fixture = Fixture::<Sqlite>::new().await.unwrap();
    fixture.publish(&[message("a", 1, "good")]).await;
    let running = fixture.consumer(options(), layered(TimeoutLayer::new(Duration::from_secs(60)), plain(refusing)));
    fixture.settle(1).await;
    running.stop().await;
    let letter = &fixture.letters().await[0];
    assert_eq!((letter.error_code.as_str(), letter.attempts), ("NO_SUCH_SKU", 1));
}
