//! tower layers around a handler: timeouts, limits, and other middleware.

use std::future::poll_fn;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use landfall_core::{Database, Failure, Result};
use tower_layer::Layer;
use tower_service::Service;

use super::{Context, Handler};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Wraps `handler` in `layer`.
///
/// ```
/// use std::time::Duration;
///
/// use landfall::consume::layered;
/// use landfall::prelude::*;
/// use landfall::sqlite::Sqlite;
/// use tower::timeout::TimeoutLayer;
///
/// async fn handle(_: Context<'_, Sqlite>) -> Result<(), Failure> {
///     Ok(())
/// }
/// let handler = layered(TimeoutLayer::new(Duration::from_secs(5)), plain(handle));
/// # fn check(_: impl Handler<Sqlite>) {}
/// # check(handler);
/// ```
///
/// An error of the layer itself, such as a timeout or an overload, is retried. A failure of the handler passes through
/// unchanged.
pub fn layered<L, H>(layer: L, handler: H) -> Layered<L::Service>
where
    L: Layer<HandlerService<H>>,
{
    Layered(layer.layer(HandlerService(Arc::new(handler))))
}

/// The handler that [`layered`] returns.
#[derive(Debug)]
pub struct Layered<S>(S);

/// A handler as a tower service.
#[derive(Debug)]
pub struct HandlerService<H>(Arc<H>);

impl<H> Clone for HandlerService<H> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// A [`Failure`] as a `std::error::Error`, which layers require.
#[derive(Debug)]
pub struct Failed(pub Failure);

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Failed {}

impl<'a, D: Database, H: Handler<D>> Service<Context<'a, D>> for HandlerService<H> {
    type Response = ();
    type Error = Failed;
    type Future = BoxFuture<'a, Result<(), Failed>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Failed>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, context: Context<'a, D>) -> Self::Future {
        let handler = self.0.clone();
        Box::pin(async move { handler.handle(context).await.map_err(Failed) })
    }
}

impl<D, S> Handler<D> for Layered<S>
where
    D: Database,
    S: for<'a> Service<Context<'a, D>, Response = ()> + Clone + Send + Sync + 'static,
    for<'a> <S as Service<Context<'a, D>>>::Future: Send,
    for<'a> <S as Service<Context<'a, D>>>::Error: Into<BoxError> + Send,
{
    async fn handle<'a>(&'a self, context: Context<'a, D>) -> Result<(), Failure> {
        let mut service = self.0.clone();
        poll_fn(|task| Service::<Context<'a, D>>::poll_ready(&mut service, task))
            .await
            .map_err(|e| failure(e.into()))?;
        service.call(context).await.map_err(|error| failure(error.into()))
    }
}

fn failure(error: BoxError) -> Failure {
    match error.downcast::<Failed>() {
        Ok(failed) => failed.0,
        Err(error) => Failure::retry(&error).caused_by(&*error),
    }
}
