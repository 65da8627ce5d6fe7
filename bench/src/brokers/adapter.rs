//! The same work through Landfall's adapter.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use landfall::{Broker, Message, Subscriber};

use super::Client;
use crate::Result;
use crate::workload::{group, topic};

/// A delivery that takes longer than this is treated as lost.
const STUCK_AFTER: Duration = Duration::from_secs(30);

pub(super) struct ThroughAdapter {
    broker: Arc<dyn Broker>,
    subscriber: Option<Box<dyn Subscriber>>,
}

impl ThroughAdapter {
    pub(super) fn new(broker: Arc<dyn Broker>) -> Self {
        Self { broker, subscriber: None }
    }
}

#[async_trait]
impl Client for ThroughAdapter {
    async fn publish(&mut self, messages: &[Message]) -> Result<()> {
        for outcome in self.broker.publisher().publish(messages).await {
            if !outcome.is_accepted() {
                return Err(format!("the broker did not accept a message: {outcome:?}").into());
            }
        }
        Ok(())
    }

    async fn consume(&mut self, count: u64) -> Result<()> {
        let subscriber = match &mut self.subscriber {
            Some(subscriber) => subscriber,
            None => self.subscriber.insert(self.broker.subscribe(&topic()?, &group()?).await?),
        };
        for _ in 0..count {
            let delivery = tokio::time::timeout(STUCK_AFTER, subscriber.next()).await??;
            let (message, _, acknowledge) = delivery.ok_or("the subscription ended")?.into_parts();
            message?;
            acknowledge.ack().await?;
        }
        Ok(())
    }
}
