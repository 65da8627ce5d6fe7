//! The part that ordered and unordered relays share: check a batch, publish it, decide how each entry is settled.

use landfall_core::adapter::{Decision, OutboxEntry, Settlement};
use landfall_core::{Error, ErrorCode, Message, Mode, Outcome, Publisher, Result, RowId, Timestamp};

use super::Options;
use super::decide::{decide, outage};

/// Publishes batches of outbox entries.
pub(super) struct BatchPublisher<'a> {
    pub(super) publisher: &'a dyn Publisher,
    pub(super) options: &'a Options,
}

/// One pass over the outbox: a batch, from reading it to settling it.
pub(super) trait Pass: Sync {
    fn run(&self) -> impl Future<Output = Result<Progress>> + Send;
}

/// The result of a pass.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// This many entries were settled; there may be more.
    Moved(usize),
    /// There was nothing to do.
    Idle,
    /// The broker is unavailable; no entry was settled.
    BrokerDown(String),
}

/// The result of publishing a batch.
pub(super) enum Published {
    Settled(Vec<Settlement>),
    BrokerDown(String),
}

/// An entry and its message.
pub(super) type Publishable = (OutboxEntry, Message);

impl BatchPublisher<'_> {
    /// Separates entries that can never be published: they are not valid messages, or exceed the limits.
    pub(super) fn check(&self, entries: Vec<OutboxEntry>) -> (Vec<Publishable>, Vec<Settlement>) {
        let mut publishable = Vec::with_capacity(entries.len());
        let mut unpublishable = Vec::new();
        for entry in entries {
            match self.check_entry(entry) {
                Ok(checked) => publishable.push(checked),
                Err(park) => unpublishable.push(park),
            }
        }
        (publishable, unpublishable)
    }

    /// The front of a batch: its publishable entries up to the first that can never be published, and the run of such
    /// entries there. The rest is read again later. An unpublishable entry is parked, and holds its key, only after
    /// every entry before it was published; the key of an entry that is not a valid message is unknown.
    pub(super) fn check_front(&self, entries: Vec<OutboxEntry>) -> (Vec<Publishable>, Vec<Settlement>) {
        let mut publishable = Vec::with_capacity(entries.len());
        let mut unpublishable = Vec::new();
        for entry in entries {
            match self.check_entry(entry) {
                Ok(checked) if unpublishable.is_empty() => publishable.push(checked),
                Ok(_) => break,
                Err(park) => unpublishable.push(park),
            }
        }
        (publishable, unpublishable)
    }

    fn check_entry(&self, mut entry: OutboxEntry) -> Result<Publishable, Settlement> {
        let checked = std::mem::replace(&mut entry.message, Err(Error::invalid("moved out of its entry")));
        let checked = checked.map_err(|error| (ErrorCode::VALIDATION, error)).and_then(|message| {
            self.options.limits.check(&message).map_err(|error| (ErrorCode::TOO_LARGE, error))?;
            match message.sequence {
                Some(sequence) if sequence < 0 => {
                    let error = Error::invalid(format!("the sequence {sequence} is negative; it counts from 0"));
                    Err((ErrorCode::VALIDATION, error))
                }
                _ => Ok(message),
            }
        });
        match checked {
            Ok(message) => Ok((entry, message)),
            Err((code, error)) => {
                let holds_key = self.options.failed_holds_key;
                Err(settlement(&entry, Decision::Park { code, error: error.to_string(), holds_key }))
            }
        }
    }

    /// Publishes, and decides how to settle each entry. At-most-once entries were settled before.
    pub(super) async fn publish(&self, batch: Vec<Publishable>) -> Published {
        let (entries, messages): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        let mut outcomes = self.publisher.publish(&messages).await;
        fail::fail_point!("relay.after-publish");
        // A publisher that returns too few outcomes leaves the others unknown.
        outcomes.resize(messages.len(), Outcome::Unknown("the publisher returned no outcome".into()));

        count_lost(&messages, &outcomes);
        if let Some(reason) = outage(&outcomes) {
            return Published::BrokerDown(reason.to_owned());
        }
        let mut settlements = Vec::with_capacity(entries.len());
        for ((entry, message), outcome) in entries.iter().zip(&messages).zip(&outcomes) {
            observe(message, outcome);
            if message.mode == Mode::AtMostOnce {
                continue;
            }
            if let Some(decision) = decide(outcome, entry.attempts, self.options, rand::random()) {
                log_failure(entry.row, message, &decision);
                settlements.push(settlement(entry, decision));
            }
        }
        Published::Settled(settlements)
    }
}

/// Settlements of the at-most-once entries, which leave the outbox before they are published: a crash cannot publish
/// them twice.
pub(super) fn at_most_once(batch: &[Publishable]) -> Vec<Settlement> {
    let once = batch.iter().filter(|(_, message)| message.mode == Mode::AtMostOnce);
    once.map(|(entry, _)| settlement(entry, Decision::Published)).collect()
}

fn settlement(entry: &OutboxEntry, decision: Decision) -> Settlement {
    Settlement { row: entry.row, shard: entry.shard, decision }
}

/// Counts at-most-once messages that the broker did not accept. They have left the outbox and are not sent again.
fn count_lost(messages: &[Message], outcomes: &[Outcome]) {
    for (message, outcome) in messages.iter().zip(outcomes) {
        if message.mode == Mode::AtMostOnce && !outcome.is_accepted() {
            metrics::counter!("landfall_at_most_once_lost_total").increment(1);
            let key = message.key.as_ref().map(|key| key.as_str());
            let (message_id, topic) = (message.id, &message.topic);
            tracing::warn!(%message_id, %topic, key, ?outcome, "at-most-once message lost");
        }
    }
}

/// Counts the dead letters among `settlements`, after they were committed.
pub(super) fn count_parked<'a>(settlements: impl IntoIterator<Item = &'a Settlement>) {
    let is_parked = |settlement: &&Settlement| matches!(settlement.decision, Decision::Park { .. });
    let parked = settlements.into_iter().filter(is_parked).count();
    metrics::counter!("landfall_dlq_in_total").increment(parked as u64);
}

/// Logs entries that can never be published, before they are settled.
pub(super) fn log_unpublishable(settlements: &[Settlement]) {
    for settlement in settlements {
        if let Decision::Park { code, error, holds_key } = &settlement.decision {
            tracing::error!(row = settlement.row, %code, error, holds_key, "not a valid message, parked");
        }
    }
}

/// Logs a failure before it is settled.
fn log_failure(row: RowId, message: &Message, decision: &Decision) {
    let (message_id, topic) = (message.id, &message.topic);
    let key = message.key.as_ref().map(|key| key.as_str());
    match decision {
        Decision::Published => {}
        Decision::Retry { after, error } => {
            tracing::warn!(row, %message_id, %topic, key, ?after, error, "publish failed, retrying");
        }
        Decision::Park { code, error, holds_key } => {
            tracing::error!(row, %message_id, %topic, key, %code, error, holds_key, "publish failed, parked");
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
