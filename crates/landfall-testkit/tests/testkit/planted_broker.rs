//! A correct broker with one planted bug.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use landfall_core::adapter::{Acknowledge, BrokerCapabilities, Delivery, Subscriber, wire};
use landfall_core::{
    Broker, ErrorCode, GroupName, Message, MessageId, Outcome, Position, Publisher, Result, StartAt, TopicInfo,
    TopicName, TopicReader,
};
use landfall_testkit::MemoryBroker;
use landfall_testkit::conformance::broker::BrokerFixture;

macro_rules! bugs {
    ($($bug:ident),+ $(,)?) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Bug { $($bug),+ }

        impl Bug {
            const ALL: &[Bug] = &[$(Bug::$bug),+];
        }
    };
}

bugs! {
    Nothing,
    ReordersKey,
    DropsMessage,
    OmitsOutcome,
    TruncatesPayloads,
    AcksPredecessors,
    LosesAcks,
    AcksOnDelivery,
    IgnoresDelays,
    BlocksAfterNack,
    StartsGroupsAtEnd,
    SharesGroups,
    LosesOnCancellation,
    ReportsWrongPositions,
    IgnoresStartPosition,
    LosesDataOnRestart,
    StoresDuplicates,
    DeduplicatesRetries,
    AcceptsOversized,
    OvertakesRefused,
}

/// The payload limit of the planted broker.
const PAYLOAD_BYTES: usize = 100_000;

/// A broker with the bug number `BUG`, a type parameter because a fixture is created without arguments.
#[derive(Debug, Clone, Default)]
pub(crate) struct Planted<const BUG: usize> {
    broker: MemoryBroker,
    unacked: UnackedDeliveries,
    has_omitted_outcome: Arc<AtomicBool>,
    seen: Arc<Mutex<HashMap<MessageId, Outcome>>>,
}

/// Unacknowledged deliveries.
type UnackedDeliveries = Arc<Mutex<Vec<(Position, Box<dyn Acknowledge>)>>>;

impl<const BUG: usize> Planted<BUG> {
    fn has(&self, bug: Bug) -> bool {
        Bug::ALL[BUG] == bug
    }

    fn new() -> Self {
        Self { broker: MemoryBroker::new(), ..Self::default() }
    }
}

impl<const BUG: usize> BrokerFixture for Planted<BUG> {
    async fn create() -> Option<Self> {
        Some(Self::new())
    }

    fn broker(&self) -> Arc<dyn Broker> {
        Arc::new(self.clone())
    }

    async fn reopen(self) -> Self {
        if self.has(Bug::LosesDataOnRestart) { Self::new() } else { self }
    }
}

#[async_trait]
impl<const BUG: usize> Broker for Planted<BUG> {
    fn capabilities(&self) -> BrokerCapabilities {
        // Memory survives the simulated restart, so that the durable cases run too.
        BrokerCapabilities {
            durable: true,
            deduplicates: true,
            payload_bytes: Some(PAYLOAD_BYTES),
            ..self.broker.capabilities()
        }
    }

    fn publisher(&self) -> Arc<dyn Publisher> {
        Arc::new(self.clone())
    }

    async fn subscribe(&self, topic: &TopicName, group: &GroupName) -> Result<Box<dyn Subscriber>> {
        let shared = GroupName::new("shared")?;
        let mut inner = self.broker.subscribe(topic, if self.has(Bug::SharesGroups) { &shared } else { group }).await?;
        if self.has(Bug::StartsGroupsAtEnd) {
            while let Ok(delivery) = tokio::time::timeout(Duration::from_millis(1), inner.next()).await {
                delivery?.expect("the broker is closed").ack().await?;
            }
        }
        Ok(Box::new(PlantedSubscriber { planted: self.clone(), inner, until: None }))
    }

    async fn topics(&self) -> Result<Vec<TopicInfo>> {
        self.broker.topics().await
    }

    async fn read(&self, topic: &TopicName, from: StartAt) -> Result<Box<dyn TopicReader>> {
        let from = if self.has(Bug::IgnoresStartPosition) { StartAt::Beginning } else { from };
        self.broker.read(topic, from).await
    }
}

impl<const BUG: usize> Planted<BUG> {
    /// Publishes messages except duplicates, oversized ones, and those behind a refused one of their key.
    async fn publish_new(&self, batch: &[Message]) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        let mut blocked_keys = Vec::new();
        for message in batch {
            let dedup_id = match self.has(Bug::DeduplicatesRetries) {
                true => message.id,
                false => wire::broker_id(message),
            };
            let duplicate =
                self.seen.lock().unwrap().get(&dedup_id).cloned().filter(|_| !self.has(Bug::StoresDuplicates));
            let outcome = if let Some(outcome) = duplicate {
                outcome
            } else if message.key.is_some() && blocked_keys.contains(&&message.key) {
                Outcome::behind_predecessor()
            } else if message.payload.len() > PAYLOAD_BYTES && !self.has(Bug::AcceptsOversized) {
                Outcome::refuse(ErrorCode::TOO_LARGE, "the payload is too large")
            } else {
                self.broker.publish(std::slice::from_ref(message)).await.remove(0)
            };
            if outcome.is_accepted() {
                self.seen.lock().unwrap().insert(dedup_id, outcome.clone());
            } else if !self.has(Bug::OvertakesRefused) {
                blocked_keys.push(&message.key);
            }
            outcomes.push(outcome);
        }
        outcomes
    }
}

#[async_trait]
impl<const BUG: usize> Publisher for Planted<BUG> {
    async fn publish(&self, batch: &[Message]) -> Vec<Outcome> {
        let mut batch = batch.to_vec();
        if self.has(Bug::TruncatesPayloads) {
            batch.iter_mut().for_each(|message| message.payload.truncate(3));
        }
        if self.has(Bug::ReordersKey) {
            batch.reverse();
        }
        let dropped = batch.iter().position(|message| self.has(Bug::DropsMessage) && message.sequence == Some(2));
        if let Some(dropped) = dropped {
            batch.remove(dropped);
        }
        let mut outcomes = self.publish_new(&batch).await;
        if let Some(dropped) = dropped {
            outcomes.insert(dropped, Outcome::Accepted(Position { partition: 0, offset: 1_000_000 }));
        }
        if self.has(Bug::ReordersKey) {
            outcomes.reverse();
        }
        if self.has(Bug::OmitsOutcome) && !self.has_omitted_outcome.swap(true, Ordering::SeqCst) {
            outcomes.pop();
        }
        outcomes
    }
}

struct PlantedSubscriber<const BUG: usize> {
    planted: Planted<BUG>,
    inner: Box<dyn Subscriber>,
    /// With the bug `BlocksAfterNack`, nothing is delivered before this time.
    until: Option<Arc<Mutex<tokio::time::Instant>>>,
}

#[async_trait]
impl<const BUG: usize> Subscriber for PlantedSubscriber<BUG> {
    async fn next(&mut self) -> Result<Option<Delivery>> {
        if let Some(until) = &self.until {
            let until = *until.lock().unwrap();
            tokio::time::sleep_until(until).await;
        }
        let Some(delivery) = self.inner.next().await? else { return Ok(None) };
        let (message, mut position, acknowledge) = delivery.into_parts();
        let mut receipt = Receipt {
            planted: self.planted.clone(),
            position,
            inner: None,
            until: self.until.get_or_insert_with(|| Arc::new(Mutex::new(tokio::time::Instant::now()))).clone(),
        };
        if self.planted.has(Bug::AcksPredecessors) {
            self.planted.unacked.lock().unwrap().push((position, acknowledge));
        } else if self.planted.has(Bug::AcksOnDelivery) || self.planted.has(Bug::LosesOnCancellation) {
            acknowledge.ack().await?;
        } else {
            receipt.inner = Some(acknowledge);
        }
        if self.planted.has(Bug::LosesOnCancellation) {
            tokio::time::sleep(Duration::from_micros(500)).await;
        }
        if self.planted.has(Bug::ReportsWrongPositions) {
            position.offset += 1;
        }
        Ok(Some(Delivery::new(message, position, Box::new(receipt))))
    }

    async fn close(self: Box<Self>) -> Result<()> {
        self.inner.close().await
    }
}

#[derive(Debug)]
struct Receipt<const BUG: usize> {
    planted: Planted<BUG>,
    position: Position,
    inner: Option<Box<dyn Acknowledge>>,
    until: Arc<Mutex<tokio::time::Instant>>,
}

#[async_trait]
impl<const BUG: usize> Acknowledge for Receipt<BUG> {
    async fn ack(mut self: Box<Self>) -> Result<()> {
        let predecessors: Vec<_> = {
            let mut unacked = self.planted.unacked.lock().unwrap();
            unacked.extract_if(.., |(position, _)| *position <= self.position).collect()
        };
        for (_, acknowledge) in predecessors {
            acknowledge.ack().await?;
        }
        match self.inner.take() {
            Some(inner) if self.planted.has(Bug::LosesAcks) => {
                // Redelivered only when the subscriber is dropped.
                self.planted.unacked.lock().unwrap().push((Position { partition: 9, offset: 0 }, inner));
                Ok(())
            }
            Some(inner) => inner.ack().await,
            None => Ok(()),
        }
    }

    async fn nack(mut self: Box<Self>, delay: Duration) -> Result<()> {
        if self.planted.has(Bug::BlocksAfterNack) {
            *self.until.lock().unwrap() = tokio::time::Instant::now() + delay;
        }
        match self.inner.take() {
            Some(inner) if self.planted.has(Bug::IgnoresDelays) => inner.nack(Duration::ZERO).await,
            Some(inner) => inner.nack(delay).await,
            None => Ok(()),
        }
    }
}
