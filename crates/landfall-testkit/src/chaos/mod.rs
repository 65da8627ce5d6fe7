//! A broker that injects every fault a broker is allowed to have, for tests of handlers that must tolerate them.
//!
//! [`ChaosBroker`] wraps any broker and injects the faults of [`ChaosOptions`], reproducibly from a seed:
//!
//! - duplicates, many at once and in several members at once;
//! - delays, and messages that overtake others;
//! - lost acknowledgements, and memberships lost in the middle of a batch;
//! - publishes whose response is lost.
//!
//! It keeps every promise of the ports. Nothing is lost, and the first deliveries of a key's messages are in order,
//! unless [`ChaosOptions::within_key`] is set.
//!
//! The faults of a delivery depend only on the seed, its topic, group and position, and the number of earlier
//! deliveries. They do not depend on how a test's tasks are scheduled; timing, and so interleaving, does.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! use landfall_core::{Broker, GroupName, Message, TopicName};
//! use landfall_testkit::MemoryBroker;
//! use landfall_testkit::chaos::{ChaosBroker, ChaosOptions};
//!
//! let options = ChaosOptions { duplicated: 1.0, duplicates_max: 1, ..ChaosOptions::none(7) };
//! let broker = ChaosBroker::new(MemoryBroker::new(), options);
//! let (topic, group) = (TopicName::new("orders").unwrap(), GroupName::new("stock").unwrap());
//! broker.publisher().publish(&[Message::new(topic.clone(), "one book")]).await;
//!
//! let mut subscriber = broker.subscribe(&topic, &group).await.unwrap();
//! for _ in 0..2 {
//!     let delivery = subscriber.next().await.unwrap().unwrap();
//!     assert_eq!(delivery.message.as_ref().unwrap().payload, "one book");
//!     delivery.ack().await.unwrap();
//! }
//! assert_eq!(broker.counts().duplicates, 1);
//! # });
//! ```

mod counts;
mod delivery_faults;
mod options;
mod publisher;
mod receipt;
mod reorder_buffer;
mod shared;
mod subscriber;

use std::sync::Arc;

use async_trait::async_trait;
use landfall_core::adapter::{BrokerCapabilities, Subscriber};
use landfall_core::{Broker, GroupName, Publisher, Result, StartAt, TopicInfo, TopicName, TopicReader};

use publisher::ChaosPublisher;
use shared::Shared;
use subscriber::ChaosSubscriber;

pub use counts::ChaosCounts;
pub use options::ChaosOptions;

/// A wrapper that injects faults into any broker. Cheap to clone; clones share one broker.
#[derive(Clone)]
pub struct ChaosBroker {
    broker: Arc<dyn Broker>,
    shared: Arc<Shared>,
}

impl ChaosBroker {
    pub fn new(broker: impl Broker + 'static, options: ChaosOptions) -> Self {
        Self::around(Arc::new(broker), options)
    }

    /// Wraps a broker that is already shared.
    pub fn around(broker: Arc<dyn Broker>, options: ChaosOptions) -> Self {
        Self { broker, shared: Arc::new(Shared::new(options)) }
    }

    /// Returns how often each fault has happened so far.
    pub fn counts(&self) -> ChaosCounts {
        self.shared.counts()
    }

    /// Stops injecting faults. Held-back deliveries are released, and duplicates that exist are still delivered.
    pub fn heal(&self) {
        self.shared.heal();
    }

    /// Returns the number of unacknowledged duplicates.
    ///
    /// Once this and the broker's own unacknowledged messages are both zero, nothing can take effect again: a test can
    /// check its results.
    pub fn unacked_duplicates(&self) -> usize {
        self.shared.unacked_duplicates()
    }
}

#[async_trait]
impl Broker for ChaosBroker {
    fn capabilities(&self) -> BrokerCapabilities {
        let capabilities = self.broker.capabilities();
        let keeps_key_order = !self.shared.options().within_key;
        BrokerCapabilities { ordered_by_key: capabilities.ordered_by_key && keeps_key_order, ..capabilities }
    }

    fn publisher(&self) -> Arc<dyn Publisher> {
        Arc::new(ChaosPublisher { publisher: self.broker.publisher(), shared: self.shared.clone() })
    }

    async fn subscribe(&self, topic: &TopicName, group: &GroupName) -> Result<Box<dyn Subscriber>> {
        let subscriber = self.broker.subscribe(topic, group).await?;
        Ok(Box::new(ChaosSubscriber::join(self.clone(), topic, group, subscriber)))
    }

    async fn topics(&self) -> Result<Vec<TopicInfo>> {
        self.broker.topics().await
    }

    async fn read(&self, topic: &TopicName, from: StartAt) -> Result<Box<dyn TopicReader>> {
        self.broker.read(topic, from).await
    }
}

impl std::fmt::Debug for ChaosBroker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChaosBroker").field("shared", &self.shared).finish_non_exhaustive()
    }
}
