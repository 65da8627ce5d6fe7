//! A group member and its acknowledgements.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use landfall_core::adapter::{Acknowledge, Delivery, Subscriber};
use landfall_core::{GroupName, Position, Result, TopicName};
use tokio::time::Instant;

use super::Inner;
use super::group::{DeliveryToken, NextDelivery};

#[derive(Debug)]
pub(super) struct MemorySubscriber {
    inner: Arc<Inner>,
    topic: TopicName,
    group: GroupName,
    member: u64,
}

impl MemorySubscriber {
    pub(super) fn join(inner: Arc<Inner>, topic: &TopicName, group: &GroupName) -> Self {
        let member = inner.state().group(topic, group).join();
        Self { inner, topic: topic.clone(), group: group.clone(), member }
    }

    /// Returns the next delivery if one is ready, else when to ask again. `Ok(None)` means the broker is closed.
    fn poll_next(&self) -> std::result::Result<Option<Delivery>, Option<Instant>> {
        let mut state = self.inner.state();
        if state.closed {
            return Ok(None);
        }
        let stored = state.messages(&self.topic).len() as u64;
        match state.group(&self.topic, &self.group).hand_out(self.member, stored, Instant::now()) {
            NextDelivery::Pending(when) => Err(when),
            NextDelivery::Ready(offset, token) => {
                let message = state.messages(&self.topic)[offset as usize].clone();
                let receipt = Receipt {
                    inner: self.inner.clone(),
                    topic: self.topic.clone(),
                    group: self.group.clone(),
                    offset,
                    token,
                    settled: false,
                };
                Ok(Some(Delivery::new(Ok(message), Position { partition: 0, offset }, Box::new(receipt))))
            }
        }
    }
}

#[async_trait]
impl Subscriber for MemorySubscriber {
    async fn next(&mut self) -> Result<Option<Delivery>> {
        loop {
            // Registered before the check, so that a change in between is not missed.
            let mut changed = std::pin::pin!(self.inner.changed.notified());
            changed.as_mut().enable();
            match self.poll_next() {
                Ok(delivery) => return Ok(delivery),
                Err(None) => changed.await,
                // Waits for a change or the due time; the next iteration finds out which.
                Err(Some(when)) => drop(tokio::time::timeout_at(when, changed).await),
            }
        }
    }

    async fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

impl Drop for MemorySubscriber {
    fn drop(&mut self) {
        self.inner.state().group(&self.topic, &self.group).leave(self.member, Instant::now());
        self.inner.changed.notify_waiters();
    }
}

/// Acknowledges one delivery. Dropped without ack or nack, it returns the message for redelivery.
#[derive(Debug)]
struct Receipt {
    inner: Arc<Inner>,
    topic: TopicName,
    group: GroupName,
    offset: u64,
    token: DeliveryToken,
    settled: bool,
}

impl Receipt {
    fn return_for_redelivery(&mut self, delay: Duration) {
        self.settled = true;
        let due = Instant::now() + delay;
        self.inner.state().group(&self.topic, &self.group).return_for_redelivery(self.offset, self.token, due);
        self.inner.changed.notify_waiters();
    }
}

#[async_trait]
impl Acknowledge for Receipt {
    async fn ack(mut self: Box<Self>) -> Result<()> {
        self.settled = true;
        self.inner.state().group(&self.topic, &self.group).finish(self.offset, self.token);
        Ok(())
    }

    async fn nack(mut self: Box<Self>, delay: Duration) -> Result<()> {
        self.return_for_redelivery(delay);
        Ok(())
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if !self.settled {
            self.return_for_redelivery(Duration::ZERO);
        }
    }
}
