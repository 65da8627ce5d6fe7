//! What ordered and unordered relays have in common: a batch is looked through, published, and decided upon.

use landfall_core::{
    Decision, Error, ErrorCode, Message, Mode, OutboxEntry, Outcome, Publisher, Result, Settlement, Timestamp,
};

use super::Options;
use super::decide::{decide, outage};

pub(super) struct Sender<'a> {
    pub(super) publisher: &'a dyn Publisher,
    pub(super) options: &'a Options,
}

/// One turn at the outbox: a batch, from reading it to settling it.
pub(super) trait Turn: Sync {
    fn take(&self) -> impl Future<Output = Result<Progress>> + Send;
}

/// What a turn came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Something changed; there may be more.
    Moved,
    /// There was nothing to do.
    Idle,
    /// The broker is out of reach; nothing was changed.
    BrokerDown(String),
}

/// What became of a batch.
pub(super) enum Sent {
    Decided(Vec<Settlement>),
    BrokerDown(String),
}

/// An entry and the message in it.
pub(super) type Publishable = (OutboxEntry, Message);

impl Sender<'_> {
    /// Sets apart what cannot be published, whatever the broker says.
    pub(super) fn sort(&self, entries: Vec<OutboxEntry>) -> (Vec<Publishable>, Vec<Settlement>) {
        let mut publishable = Vec::with_capacity(entries.len());
        let mut unpublishable = Vec::new();
        for mut entry in entries {
            let checked = std::mem::replace(&mut entry.message, Err(Error::invalid("taken")));
            let checked = checked.map_err(|error| (ErrorCode::VALIDATION, error)).and_then(|message| {
                self.options.limits.check(&message).map_err(|error| (ErrorCode::TOO_LARGE, error))?;
                Ok(message)
            });
            match checked {
                Ok(message) => publishable.push((entry, message)),
                Err((code, error)) => {
                    let holds_key = self.options.failed_holds_key;
                    let decision = Decision::Park { code, error: error.to_string(), holds_key };
                    unpublishable.push(settlement(&entry, decision));
                }
            }
        }
        (publishable, unpublishable)
    }

    /// Publishes, and decides about all that was not settled before it was sent.
    pub(super) async fn send(&self, batch: Vec<Publishable>) -> Sent {
        let (entries, messages): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        let mut outcomes = self.publisher.publish(&messages).await;
        fail::fail_point!("relay.after-publish");
        // A publisher that answers for fewer than it was given has left the rest undecided.
        outcomes.resize(messages.len(), Outcome::Unknown("the publisher did not answer for it".into()));

        if let Some(reason) = outage(&outcomes) {
            return Sent::BrokerDown(reason.to_owned());
        }
        let mut settlements = Vec::with_capacity(entries.len());
        for ((entry, message), outcome) in entries.iter().zip(&messages).zip(&outcomes) {
            observe(message, outcome);
            if message.mode == Mode::AtMostOnce {
                continue;
            }
            if let Some(decision) = decide(outcome, entry.attempts, self.options, rand::random()) {
                settlements.push(settlement(entry, decision));
            }
        }
        Sent::Decided(settlements)
    }
}

/// Those that must be gone from the outbox before they are sent, so that no crash can send them twice.
pub(super) fn fire_and_forget(batch: &[Publishable]) -> Vec<Settlement> {
    let once = batch.iter().filter(|(_, message)| message.mode == Mode::AtMostOnce);
    once.map(|(entry, _)| settlement(entry, Decision::Published)).collect()
}

fn settlement(entry: &OutboxEntry, decision: Decision) -> Settlement {
    Settlement { row: entry.row, shard: entry.shard, decision }
}

/// Says in the log what did not go well, before it is settled.
pub(super) fn report(settlements: &[Settlement]) {
    for settlement in settlements {
        match &settlement.decision {
            Decision::Published => {}
            Decision::Retry { after, error } => {
                tracing::warn!(row = settlement.row, ?after, %error, "not published; tried again later");
            }
            Decision::Park { code, error, holds_key } => {
                metrics::counter!("landfall_dlq_in_total").increment(1);
                tracing::error!(row = settlement.row, %code, %error, holds_key, "parked");
            }
        }
    }
}

fn observe(message: &Message, outcome: &Outcome) {
    if outcome.is_accepted() {
        metrics::counter!("landfall_published_total").increment(1);
        metrics::histogram!("landfall_delivery_seconds")
            .record(message.time.elapsed_since(Timestamp::now()).as_secs_f64());
    }
}
