//! A broker that does to its consumers whatever a broker is allowed to do: for tests of handlers that must stand it.
//!
//! [`UnrulyBroker`] wraps any broker and makes the trouble that [`Troubles`] asks for, on purpose and from a seed:
//! copies (many at once, in several members at once), delays, messages that overtake others, acknowledgements that are
//! lost, memberships that are lost in the middle of a batch, publishes that are never answered. It breaks no promise of
//! the ports: nothing is lost, and a key's messages come for the first time in their order, unless
//! [`Troubles::within_key`] asks for the opposite.
//!
//! What happens to a delivery depends on the seed, its topic, group and position, and how often it has come before, and
//! on nothing else: the same deliveries meet the same troubles, however the tasks of a test are scheduled. How long
//! things take, and so who comes before whom, is the scheduler's.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! use landfall_core::{Broker, GroupName, Message, TopicName};
//! use landfall_testkit::MemoryBroker;
//! use landfall_testkit::unruly::{Troubles, UnrulyBroker};
//!
//! let troubles = Troubles { duplicated: 1.0, copies_max: 1, ..Troubles::none(7) };
//! let broker = UnrulyBroker::new(MemoryBroker::new(), troubles);
//! let (topic, group) = (TopicName::new("orders").unwrap(), GroupName::new("stock").unwrap());
//! broker.publisher().publish(&[Message::new(topic.clone(), "one book")]).await;
//!
//! let mut subscriber = broker.subscribe(&topic, &group).await.unwrap();
//! for _ in 0..2 {
//!     let delivery = subscriber.next().await.unwrap().unwrap();
//!     assert_eq!(delivery.message.as_ref().unwrap().payload, "one book");
//!     delivery.ack().await.unwrap();
//! }
//! assert_eq!(broker.happened().copies, 1);
//! # });
//! ```

mod crowd;
mod fate;
mod happened;
mod publisher;
mod receipt;
mod shelf;
mod subscriber;
mod troubles;

use std::sync::Arc;

use async_trait::async_trait;
use landfall_core::{
    Broker, BrokerCapabilities, GroupName, Publisher, Result, StartAt, Subscriber, TopicInfo, TopicName, TopicReader,
};

use crowd::Shared;
use publisher::UnrulyPublisher;
use subscriber::UnrulySubscriber;

pub use happened::Happened;
pub use troubles::Troubles;

/// Any broker, with trouble. Cheap to clone; all clones are the same broker.
#[derive(Clone)]
pub struct UnrulyBroker {
    broker: Arc<dyn Broker>,
    shared: Arc<Shared>,
}

impl UnrulyBroker {
    pub fn new(broker: impl Broker + 'static, troubles: Troubles) -> Self {
        Self::around(Arc::new(broker), troubles)
    }

    /// The same, around a broker that is shared already.
    pub fn around(broker: Arc<dyn Broker>, troubles: Troubles) -> Self {
        Self { broker, shared: Arc::new(Shared::new(troubles)) }
    }

    /// What has been done so far.
    pub fn happened(&self) -> Happened {
        self.shared.happened()
    }

    /// No more trouble from now on. What is held back is let go, and copies that were made still come.
    pub fn heal(&self) {
        self.shared.heal();
    }

    /// Copies that were made and are not acknowledged. With none of them left, and nothing unacknowledged in the broker
    /// itself, nothing can take effect a second time any more: the moment to judge.
    pub fn outstanding_copies(&self) -> usize {
        self.shared.outstanding_copies()
    }
}

#[async_trait]
impl Broker for UnrulyBroker {
    fn capabilities(&self) -> BrokerCapabilities {
        let capabilities = self.broker.capabilities();
        let keeps_keys = !self.shared.troubles().within_key;
        BrokerCapabilities { ordered_by_key: capabilities.ordered_by_key && keeps_keys, ..capabilities }
    }

    fn publisher(&self) -> Arc<dyn Publisher> {
        Arc::new(UnrulyPublisher { publisher: self.broker.publisher(), shared: self.shared.clone() })
    }

    async fn subscribe(&self, topic: &TopicName, group: &GroupName) -> Result<Box<dyn Subscriber>> {
        let subscriber = self.broker.subscribe(topic, group).await?;
        Ok(Box::new(UnrulySubscriber::join(self.clone(), topic, group, subscriber)))
    }

    async fn topics(&self) -> Result<Vec<TopicInfo>> {
        self.broker.topics().await
    }

    async fn read(&self, topic: &TopicName, from: StartAt) -> Result<Box<dyn TopicReader>> {
        self.broker.read(topic, from).await
    }
}

impl std::fmt::Debug for UnrulyBroker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UnrulyBroker").field("shared", &self.shared).finish_non_exhaustive()
    }
}
