//! Handlers as people like to write them: typed, with tower's layers around them.

use std::time::Duration;

use landfall::consume::{Context, Options, layered, plain, typed};
use landfall::{Backoff, Failure, Message};
use landfall_sqlite::Sqlite;
use serde::Deserialize;
use tower::limit::ConcurrencyLimitLayer;
use tower::timeout::TimeoutLayer;

use crate::ground::{Ground, QUICK, message, options};
use crate::place::Place;

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
async fn a_payload_comes_as_a_type_and_one_that_does_not_parse_is_parked_with_the_reason() {
    let ground = Ground::<Sqlite>::new().await.unwrap();
    let with = |key, payload: &'static str| Message { payload: payload.into(), ..message(key, 1, "OrderPlaced") };
    ground.publish(&[with("a", r#"{"sku": "book", "quantity": 2}"#), with("b", r#"{"sku": "book"}"#)]).await;
    let running = ground.consumer(options(), typed(place_order));
    ground.settle(2).await;
    running.stop().await;
    assert_eq!(ground.database.effects().await.len(), 1);
    let letter = &ground.letters().await[0];
    assert_eq!((letter.error_code.as_str(), letter.attempts), ("VALIDATION_ERROR", 1));
    assert_eq!(letter.error, "the payload is not a valid OrderPlaced: missing field `quantity` at line 1 column 15");
}

/// Hangs the first time.
async fn sluggish(context: Context<'_, Sqlite>) -> Result<(), Failure> {
    Sqlite::record(&mut *context.connection, context.message).await?;
    if context.attempt == 1 {
        std::future::pending::<()>().await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_and_a_limit_of_tower_work_around_a_handler() {
    let ground = Ground::<Sqlite>::new().await.unwrap();
    ground.publish(&[message("a", 1, "good"), message("b", 1, "good")]).await;
    let layers = (ConcurrencyLimitLayer::new(1), TimeoutLayer::new(Duration::from_millis(30)));
    let handler = layered(layers, plain(sluggish));
    // On a slow machine others than the first may take too long as well.
    let options = Options { backoff: Backoff { max_attempts: 1000, ..QUICK }, ..options() };
    let running = ground.consumer(options, handler);
    ground.effects_become(2).await;
    running.stop().await;
    assert_eq!(ground.database.effects().await.len(), 2, "what was begun in vain is rolled back");
    ground.all_is_acknowledged().await;
}

async fn refusing(context: Context<'_, Sqlite>) -> Result<(), Failure> {
    let code = landfall::ErrorCode::new("no such sku");
    Sqlite::record(context.connection, context.message).await?;
    Err(Failure::park(code, "it is unknown"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handlers_own_failure_comes_through_the_layers_as_it_is() {
    let ground = Ground::<Sqlite>::new().await.unwrap();
    ground.publish(&[message("a", 1, "good")]).await;
    let running = ground.consumer(options(), layered(TimeoutLayer::new(Duration::from_secs(60)), plain(refusing)));
    ground.settle(1).await;
    running.stop().await;
    let letter = &ground.letters().await[0];
    assert_eq!((letter.error_code.as_str(), letter.attempts), ("NO_SUCH_SKU", 1));
}
