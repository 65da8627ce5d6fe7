//! Acknowledgement of deliveries from a chaos broker.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use landfall_core::adapter::Acknowledge;
use landfall_core::{Error, ErrorKind, GroupName, Result, TopicName};
use tokio::time::Instant;

use super::shared::{Duplicate, Shared};

/// Whether the membership that a delivery belongs to is still valid.
pub(super) type Membership = Arc<AtomicBool>;

/// Acknowledges an original delivery. Dropping it drops the inner one, so that the wrapped broker redelivers.
#[derive(Debug)]
pub(super) struct Receipt {
    pub(super) shared: Arc<Shared>,
    pub(super) membership: Membership,
    pub(super) is_ack_lost: bool,
    pub(super) acknowledge: Box<dyn Acknowledge>,
}

impl Receipt {
    fn check(&self) -> Result<()> {
        if self.membership.load(Ordering::SeqCst) {
            return Ok(());
        }
        self.shared.count(|counts| counts.late_acks += 1);
        Err(Error::new(
            ErrorKind::Unavailable,
            "the membership was lost before the acknowledgement; the message is redelivered",
        ))
    }
}

#[async_trait]
impl Acknowledge for Receipt {
    async fn ack(self: Box<Self>) -> Result<()> {
        self.check()?;
        if self.is_ack_lost && !self.shared.is_healed() {
            self.shared.count(|counts| counts.acks_lost += 1);
            return Ok(());
        }
        self.acknowledge.ack().await
    }

    async fn nack(self: Box<Self>, delay: Duration) -> Result<()> {
        self.check()?;
        self.acknowledge.nack(delay).await
    }
}

/// Acknowledges a duplicate. A dropped or nacked duplicate is redelivered unless its membership was lost.
#[derive(Debug)]
pub(super) struct DuplicateReceipt {
    pub(super) shared: Arc<Shared>,
    pub(super) membership: Membership,
    pub(super) topic: TopicName,
    pub(super) group: GroupName,
    /// `None` once settled.
    pub(super) duplicate: Option<Duplicate>,
}

impl DuplicateReceipt {
    fn requeue(&mut self, delay: Duration) {
        let Some(duplicate) = self.duplicate.take() else { return };
        if self.membership.load(Ordering::SeqCst) {
            let duplicate = Duplicate { due: Instant::now() + delay, ..duplicate };
            self.shared.requeue(&self.topic, &self.group, duplicate);
        } else {
            self.shared.duplicate_settled();
        }
    }
}

#[async_trait]
impl Acknowledge for DuplicateReceipt {
    async fn ack(mut self: Box<Self>) -> Result<()> {
        if self.duplicate.take().is_some() {
            self.shared.duplicate_settled();
        }
        Ok(())
    }

    async fn nack(mut self: Box<Self>, delay: Duration) -> Result<()> {
        self.requeue(delay);
        Ok(())
    }
}

impl Drop for DuplicateReceipt {
    fn drop(&mut self) {
        self.requeue(Duration::ZERO);
    }
}
