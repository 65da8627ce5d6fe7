//! Wraps a broker and reports when each message was acknowledged.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use landfall::{
    Acknowledge, Broker, BrokerCapabilities, Delivery, GroupName, MessageId, Publisher, Result, StartAt, Subscriber,
    TopicInfo, TopicName, TopicReader,
};
use tokio::sync::mpsc::UnboundedSender;

/// Where the times of acknowledgements are reported.
type AckTimes = UnboundedSender<(MessageId, Instant)>;

pub(crate) struct Observed {
    broker: Arc<dyn Broker>,
    ack_times: AckTimes,
}

impl Observed {
    pub(crate) fn new(broker: Arc<dyn Broker>, ack_times: AckTimes) -> Self {
        Self { broker, ack_times }
    }
}

#[async_trait]
impl Broker for Observed {
    fn capabilities(&self) -> BrokerCapabilities {
        self.broker.capabilities()
    }

    fn publisher(&self) -> Arc<dyn Publisher> {
        self.broker.publisher()
    }

    async fn subscribe(&self, topic: &TopicName, group: &GroupName) -> Result<Box<dyn Subscriber>> {
        let subscriber = self.broker.subscribe(topic, group).await?;
        Ok(Box::new(ObservedSubscriber { subscriber, ack_times: self.ack_times.clone() }))
    }

    async fn topics(&self) -> Result<Vec<TopicInfo>> {
        self.broker.topics().await
    }

    async fn read(&self, topic: &TopicName, from: StartAt) -> Result<Box<dyn TopicReader>> {
        self.broker.read(topic, from).await
    }
}

struct ObservedSubscriber {
    subscriber: Box<dyn Subscriber>,
    ack_times: AckTimes,
}

#[async_trait]
impl Subscriber for ObservedSubscriber {
    async fn next(&mut self) -> Result<Option<Delivery>> {
        let Some(delivery) = self.subscriber.next().await? else { return Ok(None) };
        let (message, position, acknowledge) = delivery.into_parts();
        let id = message.as_ref().ok().map(|message| message.id);
        let acknowledge = Box::new(ObservedAcknowledge { id, acknowledge, ack_times: self.ack_times.clone() });
        Ok(Some(Delivery::new(message, position, acknowledge)))
    }

    async fn close(self: Box<Self>) -> Result<()> {
        self.subscriber.close().await
    }
}

#[derive(Debug)]
struct ObservedAcknowledge {
    id: Option<MessageId>,
    acknowledge: Box<dyn Acknowledge>,
    ack_times: AckTimes,
}

#[async_trait]
impl Acknowledge for ObservedAcknowledge {
    async fn ack(self: Box<Self>) -> Result<()> {
        if let Some(id) = self.id {
            // The receiver is closed once the sample is complete.
            let _ = self.ack_times.send((id, Instant::now()));
        }
        self.acknowledge.ack().await
    }

    async fn nack(self: Box<Self>, delay: Duration) -> Result<()> {
        self.acknowledge.nack(delay).await
    }
}
