//! An in-memory broker, for tests of publishers and consumers without a server.
//!
//! It keeps the contract of the ports exactly, records messages in the order of arrival, and fails on demand. Each
//! topic has one partition. It is not durable: its data is gone when the last clone is dropped.

mod fault;
mod group;
mod reader;
mod state;
mod subscriber;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use landfall_core::adapter::{BrokerCapabilities, Subscriber};
use landfall_core::{
    Broker, ErrorCode, GroupName, Message, Outcome, Position, Publisher, Result, StartAt, TopicInfo, TopicName,
    TopicReader,
};
use tokio::sync::Notify;

pub use fault::Fault;
use state::State;

/// An in-memory broker. Cheap to clone; clones share one broker.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use landfall_core::{Broker, Message, Publisher, TopicName};
/// use landfall_testkit::MemoryBroker;
///
/// let broker = MemoryBroker::new();
/// let message = Message::new(TopicName::new("orders").unwrap(), "one book");
/// assert!(broker.publish(&[message.clone()]).await[0].is_accepted());
/// assert_eq!(broker.published()[0].1, message);
/// # });
/// ```
#[derive(Debug, Clone, Default)]
pub struct MemoryBroker {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    /// Notified when a waiting subscriber may find a new delivery.
    changed: Notify,
}

impl Inner {
    /// Ignores poisoning: if a task panicked with the lock held, the test has already failed.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryBroker {
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns all stored messages in the order of arrival, duplicates included.
    pub fn published(&self) -> Vec<(Position, Message)> {
        self.inner.state().published()
    }

    /// Returns how many messages of `topic` the `group` has not acknowledged: in flight, to be redelivered, or new.
    pub fn unfinished(&self, topic: &TopicName, group: &GroupName) -> u64 {
        let mut state = self.inner.state();
        let stored = state.messages(topic).len() as u64;
        state.group(topic, group).unfinished(stored)
    }

    /// Applies `fault` to the next `count` messages.
    pub fn fail_next(&self, count: usize, fault: Fault) {
        self.inner.state().faults.next(count, fault);
    }

    /// Applies `fault` to every message that matches, until [`MemoryBroker::heal`].
    pub fn fail_when(&self, matches: impl Fn(&Message) -> bool + Send + Sync + 'static, fault: Fault) {
        self.inner.state().faults.when(Box::new(matches), fault);
    }

    /// Removes all faults.
    pub fn heal(&self) {
        self.inner.state().faults.heal();
    }

    /// Refuses all further messages, and ends every subscriber.
    pub fn close(&self) {
        self.inner.state().closed = true;
        self.inner.changed.notify_waiters();
    }
}

#[async_trait]
impl Publisher for MemoryBroker {
    async fn publish(&self, batch: &[Message]) -> Vec<Outcome> {
        let outcomes = self.inner.state().publish(batch);
        self.inner.changed.notify_waiters();
        outcomes
    }
}

#[async_trait]
impl Broker for MemoryBroker {
    fn capabilities(&self) -> BrokerCapabilities {
        BrokerCapabilities { durable: false, deduplicates: false, ..BrokerCapabilities::ALL }
    }

    fn publisher(&self) -> Arc<dyn Publisher> {
        Arc::new(self.clone())
    }

    async fn subscribe(&self, topic: &TopicName, group: &GroupName) -> Result<Box<dyn Subscriber>> {
        Ok(Box::new(subscriber::MemorySubscriber::join(self.inner.clone(), topic, group)))
    }

    async fn topics(&self) -> Result<Vec<TopicInfo>> {
        Ok(self.inner.state().topics())
    }

    async fn read(&self, topic: &TopicName, from: StartAt) -> Result<Box<dyn TopicReader>> {
        Ok(Box::new(reader::MemoryReader::new(self.inner.clone(), topic, from)))
    }
}

fn closed() -> Outcome {
    Outcome::retry_later(ErrorCode::UNAVAILABLE, "the broker is closed")
}
