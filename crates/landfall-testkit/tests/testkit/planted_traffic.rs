//! A broker whose planted bug happens once, in the middle of the load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use landfall_core::adapter::{BrokerCapabilities, Subscriber};
use landfall_core::{
    Broker, ErrorCode, GroupName, Message, Outcome, Position, Publisher, Result, StartAt, TopicInfo, TopicName,
    TopicReader,
};
use landfall_testkit::MemoryBroker;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
    Nothing,
    /// Accepts a message without storing it.
    LosesMessage,
    /// Stores two messages of a key in reverse order.
    SwapsMessages,
    /// Stores a message and refuses it.
    RefusesAndStores,
    /// Refuses a message and accepts the next one of its key.
    Overtakes,
    OmitsOutcome,
}

#[derive(Debug, Clone)]
pub(crate) struct Planted {
    broker: MemoryBroker,
    bug: Bug,
    batches: Arc<AtomicUsize>,
    is_done: Arc<AtomicBool>,
}

impl Planted {
    pub(crate) fn new(bug: Bug) -> Self {
        Self { broker: MemoryBroker::new(), bug, batches: Arc::default(), is_done: Arc::default() }
    }

    /// Returns the index of the second message of the first key if the bug happens in this batch.
    fn trigger(&self, batch: &[Message]) -> Option<usize> {
        let is_due = self.batches.fetch_add(1, Ordering::SeqCst) >= 5;
        let second = batch.iter().skip(1).position(|message| message.key == batch[0].key)? + 1;
        (is_due && !self.is_done.swap(true, Ordering::SeqCst)).then_some(second)
    }
}

#[async_trait]
impl Publisher for Planted {
    async fn publish(&self, batch: &[Message]) -> Vec<Outcome> {
        let Some(second) = self.trigger(batch) else { return self.broker.publish(batch).await };
        let mut stored = batch.to_vec();
        match self.bug {
            Bug::LosesMessage | Bug::Overtakes => drop(stored.remove(0)),
            Bug::SwapsMessages => stored.swap(0, second),
            Bug::Nothing | Bug::RefusesAndStores | Bug::OmitsOutcome => {}
        }
        let mut outcomes = self.broker.publish(&stored).await;
        let refused = Outcome::retry_later(ErrorCode::new("FULL"), "the broker is full");
        match self.bug {
            Bug::LosesMessage => outcomes.insert(0, Outcome::Accepted(Position { partition: 0, offset: 0 })),
            Bug::Overtakes => outcomes.insert(0, refused),
            Bug::RefusesAndStores => {
                let of_its_key = |message: &Message| message.key == batch[0].key;
                let behind = outcomes.iter_mut().zip(batch).filter(|(_, message)| of_its_key(message));
                behind.for_each(|(outcome, _)| *outcome = Outcome::behind_predecessor());
                outcomes[0] = refused;
            }
            Bug::OmitsOutcome => drop(outcomes.pop()),
            Bug::Nothing | Bug::SwapsMessages => {}
        }
        outcomes
    }
}

#[async_trait]
impl Broker for Planted {
    fn capabilities(&self) -> BrokerCapabilities {
        self.broker.capabilities()
    }

    fn publisher(&self) -> Arc<dyn Publisher> {
        Arc::new(self.clone())
    }

    async fn subscribe(&self, topic: &TopicName, group: &GroupName) -> Result<Box<dyn Subscriber>> {
        self.broker.subscribe(topic, group).await
    }

    async fn topics(&self) -> Result<Vec<TopicInfo>> {
        self.broker.topics().await
    }

    async fn read(&self, topic: &TopicName, from: StartAt) -> Result<Box<dyn TopicReader>> {
        self.broker.read(topic, from).await
    }
}
