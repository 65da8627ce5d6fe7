//! A broker that delivers prepared messages from memory, so that only the consumer is measured.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use landfall::{
    Acknowledge, Broker, BrokerCapabilities, Delivery, Error, ErrorKind, GroupName, Message, Position, Publisher,
    StartAt, Subscriber, TopicInfo, TopicName, TopicReader,
};
use tokio::sync::mpsc;

/// Delivers `messages` to its one subscriber, each once, and reports every acknowledgement.
pub(crate) struct PreloadedBroker {
    messages: std::sync::Mutex<Vec<Message>>,
    acknowledged: mpsc::UnboundedSender<()>,
}

impl PreloadedBroker {
    pub(crate) fn new(messages: Vec<Message>, acknowledged: mpsc::UnboundedSender<()>) -> Self {
        Self { messages: std::sync::Mutex::new(messages), acknowledged }
    }
}

#[async_trait]
impl Broker for PreloadedBroker {
    fn capabilities(&self) -> BrokerCapabilities {
        BrokerCapabilities { durable: false, delayed_redelivery: false, deduplicates: false, ..BrokerCapabilities::ALL }
    }

    fn publisher(&self) -> Arc<dyn Publisher> {
        Arc::new(RefusingPublisher)
    }

    async fn subscribe(&self, _topic: &TopicName, _group: &GroupName) -> landfall::Result<Box<dyn Subscriber>> {
        let messages = match self.messages.lock() {
            Ok(mut messages) => std::mem::take(&mut *messages),
            Err(_) => return Err(unsupported("be subscribed to after a panic")),
        };
        let deliveries = messages.into_iter().zip(0..);
        Ok(Box::new(PreloadedSubscriber { deliveries, acknowledged: self.acknowledged.clone() }))
    }

    async fn topics(&self) -> landfall::Result<Vec<TopicInfo>> {
        Ok(Vec::new())
    }

    async fn read(&self, _topic: &TopicName, _from: StartAt) -> landfall::Result<Box<dyn TopicReader>> {
        Err(unsupported("be read without a group"))
    }
}

struct RefusingPublisher;

#[async_trait]
impl Publisher for RefusingPublisher {
    async fn publish(&self, batch: &[Message]) -> Vec<landfall::Outcome> {
        let refused = || landfall::Outcome::refuse(landfall::ErrorCode::UNAVAILABLE, "this broker accepts no messages");
        batch.iter().map(|_| refused()).collect()
    }
}

struct PreloadedSubscriber {
    deliveries: std::iter::Zip<std::vec::IntoIter<Message>, std::ops::RangeFrom<u64>>,
    acknowledged: mpsc::UnboundedSender<()>,
}

#[async_trait]
impl Subscriber for PreloadedSubscriber {
    /// Waits forever after the last message, as a quiet broker does.
    async fn next(&mut self) -> landfall::Result<Option<Delivery>> {
        match self.deliveries.next() {
            Some((message, offset)) => {
                let acknowledge = Box::new(Acknowledgement(self.acknowledged.clone()));
                Ok(Some(Delivery::new(Ok(message), Position { partition: 0, offset }, acknowledge)))
            }
            None => std::future::pending().await,
        }
    }

    async fn close(self: Box<Self>) -> landfall::Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
struct Acknowledgement(mpsc::UnboundedSender<()>);

#[async_trait]
impl Acknowledge for Acknowledgement {
    async fn ack(self: Box<Self>) -> landfall::Result<()> {
        // The receiver is closed once the sample is complete.
        let _ = self.0.send(());
        Ok(())
    }

    async fn nack(self: Box<Self>, _delay: Duration) -> landfall::Result<()> {
        Err(unsupported("deliver again"))
    }
}

fn unsupported(what: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("the benchmark's broker cannot {what}"))
}
