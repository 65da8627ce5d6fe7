//! What an adapter supplies: a new broker, and a way to restart it.

use std::sync::Arc;

use landfall_core::Broker;

/// A new, empty broker for one case.
pub trait BrokerFixture: Sized + Send + Sync + 'static {
    /// Creates a broker without topics. Returns `None` without a server, after calling [`not_run`](crate::not_run()).
    fn create() -> impl Future<Output = Option<Self>> + Send;

    fn broker(&self) -> Arc<dyn Broker>;

    /// Restarts the broker with its stored data.
    ///
    /// Called only if the broker declares the capability `durable`, and only after every publisher, subscriber, reader
    /// and delivery of this fixture was dropped.
    fn reopen(self) -> impl Future<Output = Self> + Send;
}
