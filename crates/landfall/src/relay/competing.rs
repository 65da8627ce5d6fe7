//! Unordered relays compete for due entries, each in a transaction that locks what it claimed.
//!
//! This scales with the number of relays and needs no shards, but reorders keys: two relays publish two messages of one
//! key at the same time, and the successors of a failed message overtake it.
//!
//! An unordered relay never works beside ordered ones, which would publish the same rows: it stops while an ordered
//! relay is registered.

use landfall_core::adapter::Lease;
use landfall_core::{CompetingQueue, Mode, Result};
use tokio::sync::watch;

use super::publish::{BatchPublisher, Pass, Progress, Published, at_most_once, count_parked, log_unpublishable};
use super::shard_leases::PassLock;
use crate::call_deadline::CallDeadline;

/// Claims, publishes and settles a batch in one transaction.
pub(super) struct CompetingPass<'a> {
    pub(super) queue: &'a dyn CompetingQueue,
    pub(super) deadline: CallDeadline,
    pub(super) publisher: BatchPublisher<'a>,
    pub(super) registered: watch::Receiver<Option<Lease>>,
    pub(super) pass: PassLock,
}

impl Pass for CompetingPass<'_> {
    async fn run(&self) -> Result<Progress> {
        // While this is locked the mode guard does not deregister.
        let _pass = self.pass.lock().await;
        let may_work = self.registered.borrow().as_ref().is_some_and(Lease::is_live);
        if may_work { self.publish_claimed().await } else { Ok(Progress::Idle) }
    }
}

impl CompetingPass<'_> {
    async fn publish_claimed(&self) -> Result<Progress> {
        let mut claim = self.deadline.run(self.queue.claim(self.publisher.options.batch)).await?;
        let entries = claim.take_entries();
        if entries.is_empty() {
            return Ok(Progress::Idle);
        }
        fail::fail_point!("relay.after-claim");
        let (mut batch, mut settlements) = self.publisher.check(entries);

        let once = at_most_once(&batch);
        if !once.is_empty() {
            // These are removed before they are published. The others are released and return with the next claim.
            self.deadline.run(claim.settle(&once)).await?;
            batch.retain(|(_, message)| message.mode == Mode::AtMostOnce);
            self.publisher.publish(batch).await;
            return Ok(Progress::Moved(once.len()));
        }
        match self.publisher.publish(batch).await {
            Published::BrokerDown(reason) => return Ok(Progress::BrokerDown(reason)),
            Published::Settled(decided) => {
                log_unpublishable(&settlements);
                settlements.extend(decided);
            }
        }
        self.deadline.run(claim.settle(&settlements)).await?;
        count_parked(&settlements);
        fail::fail_point!("relay.after-settle");
        Ok(Progress::Moved(settlements.len()))
    }
}
