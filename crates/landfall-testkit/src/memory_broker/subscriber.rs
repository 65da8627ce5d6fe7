//! A member of a group, and its acknowledgements.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use landfall_core::{Acknowledge, Delivery, GroupName, Position, Result, Subscriber, TopicName};
use tokio::time::Instant;

use super::Inner;
use super::group::{Found, Token};

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

    /// The next delivery if there is one now, else when to look again. `Ok(None)` is the end.
    fn take(&self) -> std::result::Result<Option<Delivery>, Option<Instant>> {
        let mut state = self.inner.state();
        if state.closed {
            return Ok(None);
        }
        let stored = state.messages(&self.topic).len() as u64;
        match state.group(&self.topic, &self.group).hand_out(self.member, stored, Instant::now()) {
            Found::Later(when) => Err(when),
            Found::Offset(offset, token) => {
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
            // Registered before looking, so that a change in between is not missed.
            let mut changed = std::pin::pin!(self.inner.changed.notified());
            changed.as_mut().enable();
            match self.take() {
                Ok(delivery) => return Ok(delivery),
                Err(None) => changed.await,
                // Waiting for either; which one it was shows when looking again.
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

/// Stands behind a delivery; dropped unsettled, it gives the message back.
#[derive(Debug)]
struct Receipt {
    inner: Arc<Inner>,
    topic: TopicName,
    group: GroupName,
    offset: u64,
    token: Token,
    settled: bool,
}

impl Receipt {
    fn give_back(&mut self, delay: Duration) {
        self.settled = true;
        let due = Instant::now() + delay;
        self.inner.state().group(&self.topic, &self.group).give_back(self.offset, self.token, due);
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
        self.give_back(delay);
        Ok(())
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if !self.settled {
            self.give_back(Duration::ZERO);
        }
    }
}
