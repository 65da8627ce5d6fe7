//! One pass: read a batch, publish it, settle it.

use landfall_core::{
    Decision, ErrorCode, Lease, Message, Mode, OutboxEntry, OutboxQueue, Outcome, Publisher, Result, Settlement,
    Timestamp,
};

use super::Options;
use super::decide::{decide, outage};

pub(super) struct Pass<'a> {
    pub(super) queue: &'a dyn OutboxQueue,
    pub(super) publisher: &'a dyn Publisher,
    pub(super) options: &'a Options,
}

/// What a pass came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Something changed; there may be more.
    Moved,
    /// There was nothing to do.
    Idle,
    /// The broker is out of reach; nothing was changed.
    BrokerDown(String),
}

impl Pass<'_> {
    pub(super) async fn run(&self, leases: &[Lease]) -> Result<Progress> {
        if leases.is_empty() {
            return Ok(Progress::Idle);
        }
        let entries = self.queue.next(leases, self.options.batch).await?;
        if entries.is_empty() {
            return Ok(Progress::Idle);
        }
        fail::fail_point!("relay.after-claim");
        let (entries, unpublishable) = self.sort(entries);
        if !unpublishable.is_empty() {
            // They are parked before anything else goes out: their successors must find the key held.
            self.settle(leases, unpublishable).await?;
            return Ok(Progress::Moved);
        }
        if !leases.iter().all(Lease::is_live) {
            // This process was paused, or the database was slow: somebody else may be at work on these rows.
            return Ok(Progress::Idle);
        }
        let entries = self.settle_fire_and_forget(leases, entries).await?;
        self.publish(leases, entries).await
    }

    /// Sets apart what cannot be published, whatever the broker says.
    fn sort(&self, entries: Vec<OutboxEntry>) -> (Vec<(OutboxEntry, Message)>, Vec<Settlement>) {
        let mut publishable = Vec::with_capacity(entries.len());
        let mut unpublishable = Vec::new();
        for mut entry in entries {
            let refused = landfall_core::Error::invalid("taken");
            let checked = std::mem::replace(&mut entry.message, Err(refused)).map_err(|e| (ErrorCode::VALIDATION, e));
            let checked = checked.and_then(|message| match self.options.limits.check(&message) {
                Ok(()) => Ok(message),
                Err(error) => Err((ErrorCode::TOO_LARGE, error)),
            });
            match checked {
                Ok(message) => publishable.push((entry, message)),
                Err((code, error)) => {
                    let decision =
                        Decision::Park { code, error: error.to_string(), holds_key: self.options.failed_holds_key };
                    unpublishable.push(Settlement { row: entry.row, shard: entry.shard, decision });
                }
            }
        }
        (publishable, unpublishable)
    }

    /// At-most-once means: gone from the outbox before it is sent, so that no crash can send it twice. What could
    /// not be removed is not sent.
    async fn settle_fire_and_forget(
        &self,
        leases: &[Lease],
        mut entries: Vec<(OutboxEntry, Message)>,
    ) -> Result<Vec<(OutboxEntry, Message)>> {
        let once: Vec<_> = entries
            .iter()
            .filter(|(_, message)| message.mode == Mode::AtMostOnce)
            .map(|(entry, _)| Settlement { row: entry.row, shard: entry.shard, decision: Decision::Published })
            .collect();
        if !once.is_empty() {
            let removed = self.queue.settle(leases, &once).await?;
            entries.retain(|(entry, message)| message.mode != Mode::AtMostOnce || removed.contains(&entry.row));
        }
        Ok(entries)
    }

    async fn publish(&self, leases: &[Lease], entries: Vec<(OutboxEntry, Message)>) -> Result<Progress> {
        let (entries, messages): (Vec<_>, Vec<_>) = entries.into_iter().unzip();
        let mut outcomes = self.publisher.publish(&messages).await;
        fail::fail_point!("relay.after-publish");
        // A publisher that answers for fewer than it was given has left the rest undecided.
        outcomes.resize(messages.len(), Outcome::Unknown("the publisher did not answer for it".into()));

        if let Some(reason) = outage(&outcomes) {
            return Ok(Progress::BrokerDown(reason.to_owned()));
        }
        let mut settlements = Vec::with_capacity(entries.len());
        for ((entry, message), outcome) in entries.iter().zip(&messages).zip(&outcomes) {
            observe(message, outcome);
            if message.mode == Mode::AtMostOnce {
                continue;
            }
            if let Some(decision) = decide(outcome, entry.attempts, self.options, rand::random()) {
                settlements.push(Settlement { row: entry.row, shard: entry.shard, decision });
            }
        }
        self.settle(leases, settlements).await?;
        fail::fail_point!("relay.after-settle");
        Ok(Progress::Moved)
    }

    async fn settle(&self, leases: &[Lease], settlements: Vec<Settlement>) -> Result<()> {
        for settlement in &settlements {
            match &settlement.decision {
                Decision::Published => {}
                Decision::Retry { after, error } => {
                    tracing::warn!(row = settlement.row, ?after, %error, "not published; it and its key wait");
                }
                Decision::Park { code, error, holds_key } => {
                    metrics::counter!("landfall_dlq_in_total").increment(1);
                    tracing::error!(row = settlement.row, %code, %error, holds_key, "parked");
                }
            }
        }
        let changed = self.queue.settle(leases, &settlements).await?;
        if changed.len() < settlements.len() {
            let left = settlements.len() - changed.len();
            tracing::warn!(left, "another relay has taken over; these rows were left to it");
        }
        Ok(())
    }
}

fn observe(message: &Message, outcome: &Outcome) {
    if outcome.is_accepted() {
        metrics::counter!("landfall_published_total").increment(1);
        metrics::histogram!("landfall_delivery_seconds")
            .record(message.time.elapsed_since(Timestamp::now()).as_secs_f64());
    }
}
