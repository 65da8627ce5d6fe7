//! Handlers that receive the payload as a deserialized type.

use std::marker::PhantomData;

use landfall_core::{Database, ErrorCode, Failure, Message, Result};
use serde::de::DeserializeOwned;

use super::{Context, Handler};

/// Makes a handler from an `async fn handle(context: Context<'_, D>, order: OrderPlaced) -> Result<(), Failure>`.
///
/// ```
/// use landfall::prelude::*;
/// use landfall::sqlite::Sqlite;
///
/// #[derive(serde::Deserialize)]
/// struct OrderPlaced {
///     sku: String,
///     quantity: i64,
/// }
///
/// async fn reserve(context: Context<'_, Sqlite>, order: OrderPlaced) -> Result<(), Failure> {
///     sqlx::query("UPDATE stock SET reserved = reserved + ? WHERE sku = ?")
///         .bind(order.quantity)
///         .bind(order.sku)
///         .execute(&mut *context.connection)
///         .await?;
///     Ok(())
/// }
/// # fn check(_: impl Handler<Sqlite>) {}
/// # check(typed(reserve));
/// ```
///
/// The payload is JSON. A message whose payload does not deserialize is parked at once as `VALIDATION_ERROR` with the
/// reason, because a retry cannot succeed.
pub fn typed<T, F>(function: F) -> Typed<T, F> {
    Typed { function, payload: PhantomData }
}

/// The handler that [`typed`] returns.
#[derive(Debug)]
pub struct Typed<T, F> {
    function: F,
    payload: PhantomData<fn() -> T>,
}

/// A function that takes a context and a payload, whose future borrows from the context; see
/// [`HandlerFn`](super::HandlerFn).
pub trait TypedFn<'a, D: Database, T>: Send + Sync + 'static {
    type Future: Future<Output = Result<(), Failure>> + Send + 'a;

    fn call(&self, context: Context<'a, D>, payload: T) -> Self::Future;
}

impl<'a, D, T, F, R> TypedFn<'a, D, T> for F
where
    D: Database,
    F: Fn(Context<'a, D>, T) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), Failure>> + Send + 'a,
{
    type Future = R;

    fn call(&self, context: Context<'a, D>, payload: T) -> R {
        self(context, payload)
    }
}

impl<D, T, F> Handler<D> for Typed<T, F>
where
    D: Database,
    T: DeserializeOwned + Send + 'static,
    F: for<'a> TypedFn<'a, D, T>,
{
    async fn handle<'a>(&'a self, context: Context<'a, D>) -> Result<(), Failure> {
        let payload = parse(context.message)?;
        self.function.call(context, payload).await
    }
}

/// Deserializes the JSON payload of a message, for handlers that choose the type by the message's kind.
///
/// ```
/// use landfall::consume::parse;
/// use landfall::prelude::*;
///
/// # fn main() -> landfall::Result<()> {
/// let message = Message::new(TopicName::new("orders")?, "[1, 2]");
/// assert_eq!(parse::<Vec<i64>>(&message), Ok(vec![1, 2]));
/// assert!(parse::<String>(&message).is_err());
/// # Ok(())
/// # }
/// ```
pub fn parse<T: DeserializeOwned>(message: &Message) -> Result<T, Failure> {
    serde_json::from_slice(&message.payload).map_err(|error| {
        let name = std::any::type_name::<T>();
        let name = name.rsplit("::").next().unwrap_or(name);
        Failure::park(ErrorCode::VALIDATION, format!("the payload is not a valid {name}: {error}"))
    })
}
