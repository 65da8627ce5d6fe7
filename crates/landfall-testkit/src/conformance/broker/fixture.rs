//! What an adapter supplies to be tested: a new broker, and a way to stop and start it.

use std::sync::Arc;

use landfall_core::Broker;

/// One new, empty broker for one case.
pub trait BrokerFixture: Sized + Send + Sync + 'static {
    /// A broker without any topics. `None` if there is no server, after saying so with [`not_run`](crate::not_run).
    fn create() -> impl Future<Output = Option<Self>> + Send;

    fn broker(&self) -> Arc<dyn Broker>;

    /// Stops the broker and starts it on what it stored. Called only if it declares to be durable, and only after
    /// every publisher, subscriber, reader and delivery of this fixture is gone.
    fn reopen(self) -> impl Future<Output = Self> + Send;
}
