//! A broker in memory: for tests of whatever publishes or consumes, without a server.
//!
//! It keeps the contract of the ports to the letter, records everything in the order in which it arrived, and fails
//! on demand. One topic is one partition. It is not durable: when the last clone is gone, so is everything.

mod fault;
mod group;
mod reader;
mod state;
mod subscriber;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use landfall_core::{
    Broker, BrokerCapabilities, ErrorCode, GroupName, Message, Outcome, Position, Publisher, Result, StartAt,
    Subscriber, TopicInfo, TopicName, TopicReader,
};
use tokio::sync::Notify;

pub use fault::Fault;
use state::State;

/// A broker in memory. Cheap to clone; all clones are the same broker.
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
    /// Told whenever a waiting subscriber may find something new.
    changed: Notify,
}

impl Inner {
    /// A panic while the lock was held cannot leave the state half changed in a way that matters to a test that has
    /// already failed, so a poisoned lock is taken as it is.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryBroker {
    pub fn new() -> Self {
        Self::default()
    }

    /// Everything that was stored, in the order in which it arrived, copies of one message included.
    pub fn published(&self) -> Vec<(Position, Message)> {
        self.inner.state().published()
    }

    /// Messages of `topic` that `group` has not acknowledged: in flight, to come again, or never handed out.
    pub fn unfinished(&self, topic: &TopicName, group: &GroupName) -> u64 {
        let mut state = self.inner.state();
        let stored = state.messages(topic).len() as u64;
        state.group(topic, group).unfinished(stored)
    }

    /// The next `count` messages meet `fault`.
    pub fn fail_next(&self, count: usize, fault: Fault) {
        self.inner.state().faults.next(count, fault);
    }

    /// Every message that matches meets `fault`, until [`MemoryBroker::heal`].
    pub fn fail_when(&self, matches: impl Fn(&Message) -> bool + Send + Sync + 'static, fault: Fault) {
        self.inner.state().faults.when(Box::new(matches), fault);
    }

    /// No more faults.
    pub fn heal(&self) {
        self.inner.state().faults.heal();
    }

    /// Takes nothing more, and ends every subscriber.
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
