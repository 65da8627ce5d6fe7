//! What stands behind the deliveries of an unruly broker.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use landfall_core::{Acknowledge, Error, ErrorKind, GroupName, Result, TopicName};
use tokio::time::Instant;

use super::crowd::{Copied, Shared};

/// Whether the membership that a delivery belongs to is still there.
pub(super) type Membership = Arc<AtomicBool>;

/// Behind a message itself. Dropped, it drops the broker's own, which gives the message back.
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
        self.shared.count(|happened| happened.late_acks += 1);
        Err(Error::new(ErrorKind::Unavailable, "the membership was lost while this was worked on; it comes again"))
    }
}

#[async_trait]
impl Acknowledge for Receipt {
    async fn ack(self: Box<Self>) -> Result<()> {
        self.check()?;
        if self.is_ack_lost && !self.shared.is_healed() {
            self.shared.count(|happened| happened.acks_lost += 1);
            return Ok(());
        }
        self.acknowledge.ack().await
    }

    async fn nack(self: Box<Self>, delay: Duration) -> Result<()> {
        self.check()?;
        self.acknowledge.nack(delay).await
    }
}

/// Behind a copy. Dropped, or given back, the copy comes again, unless its member has lost what it was handed out.
#[derive(Debug)]
pub(super) struct CopyReceipt {
    pub(super) shared: Arc<Shared>,
    pub(super) membership: Membership,
    pub(super) topic: TopicName,
    pub(super) group: GroupName,
    /// Taken when it is settled.
    pub(super) copied: Option<Copied>,
}

impl CopyReceipt {
    fn give_back(&mut self, delay: Duration) {
        let Some(copied) = self.copied.take() else { return };
        if self.membership.load(Ordering::SeqCst) {
            let copied = Copied { due: Instant::now() + delay, ..copied };
            self.shared.give_back(&self.topic, &self.group, copied);
        } else {
            self.shared.copy_is_done();
        }
    }
}

#[async_trait]
impl Acknowledge for CopyReceipt {
    async fn ack(mut self: Box<Self>) -> Result<()> {
        if self.copied.take().is_some() {
            self.shared.copy_is_done();
        }
        Ok(())
    }

    async fn nack(mut self: Box<Self>, delay: Duration) -> Result<()> {
        self.give_back(delay);
        Ok(())
    }
}

impl Drop for CopyReceipt {
    fn drop(&mut self) {
        self.give_back(Duration::ZERO);
    }
}
