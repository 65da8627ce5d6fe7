//! The acknowledgement behind a delivery.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use landfall_core::Result;
use landfall_core::adapter::Acknowledge;

/// How an adapter settles a delivery. Both methods return at once: brokers are informed by a background task.
pub trait Settle: Debug + Send + Sync {
    /// What the adapter needs in order to settle or redeliver a message.
    type Message: Debug + Send;

    /// The consumer has finished the message. An error means that it is delivered again.
    fn ack(&self, message: Self::Message) -> Result<()>;

    /// Delivers the message again, not before `delay`.
    fn nack(&self, message: Self::Message, delay: Duration) -> Result<()>;
}

/// Settles one delivery exactly once: acknowledged, given back, or given back at once when it is dropped.
#[derive(Debug)]
pub struct Receipt<S: Settle> {
    settle: Arc<S>,
    /// `None` once the delivery is settled.
    message: Option<S::Message>,
}

impl<S: Settle> Receipt<S> {
    pub fn new(settle: Arc<S>, message: S::Message) -> Box<Self> {
        Box::new(Self { settle, message: Some(message) })
    }
}

#[async_trait]
impl<S: Settle> Acknowledge for Receipt<S> {
    async fn ack(mut self: Box<Self>) -> Result<()> {
        self.message.take().map_or(Ok(()), |message| self.settle.ack(message))
    }

    async fn nack(mut self: Box<Self>, delay: Duration) -> Result<()> {
        self.message.take().map_or(Ok(()), |message| self.settle.nack(message, delay))
    }
}

impl<S: Settle> Drop for Receipt<S> {
    fn drop(&mut self) {
        if let Some(message) = self.message.take() {
            // An error means that the message is delivered again, which is what dropping it asks for.
            let _ = self.settle.nack(message, Duration::ZERO);
        }
    }
}
