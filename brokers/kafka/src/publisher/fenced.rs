//! A publisher that other relays can fence: each batch is a transaction under the relay's own `transactional.id`.
//!
//! A producer that starts under the same id aborts the open transaction and fences the producer before it; the cluster
//! enforces both (`docs/adr/0020-kafka-fence-stale-relays.md`).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use landfall_broker_toolkit::{KeySequencer, Pipelining};
use landfall_core::adapter::FencedPublisher;
use landfall_core::{ErrorCode, Holder, Message, Outcome, Publisher, Result};
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::producer::Producer;

use crate::client::blocking;
use crate::config::Options;
use crate::error::error;
use crate::publisher::KafkaPublisher;
use crate::publisher::delivery_reports::{DeliveryReports, ReportContext};
use crate::publisher::producer::{BATCH_BYTES, NativeProducer, RetirableProducer, batch_bytes};
use crate::topics::Topics;

pub(crate) struct FencedKafkaPublisher {
    options: Arc<Options>,
    /// Knows the topics and encodes messages; its own producer is never created.
    inner: KafkaPublisher,
    holder: Holder,
    producer: Mutex<Option<Arc<RetirableProducer>>>,
    /// Locked for the length of a transaction: there is one at a time.
    transaction: tokio::sync::Mutex<()>,
    /// The largest record batch of the next producer.
    batch_bytes: AtomicUsize,
}

/// How a transaction ended.
enum End {
    Committed,
    /// No reader sees any of it. With the error code if the cluster caused it.
    Aborted(Option<RDKafkaErrorCode>),
    Unknown(KafkaError),
}

impl FencedKafkaPublisher {
    pub(crate) fn new(options: Arc<Options>, topics: Arc<Topics>, holder: Holder) -> Self {
        let inner = KafkaPublisher::new(options.clone(), topics);
        let batch_bytes = AtomicUsize::new(BATCH_BYTES.min(options.message_bytes));
        Self {
            options,
            inner,
            holder,
            producer: Mutex::default(),
            transaction: tokio::sync::Mutex::default(),
            batch_bytes,
        }
    }

    /// Publishes one batch in one transaction. Returns `false` with the outcomes if the producer must not be used
    /// again.
    async fn transact(&self, producer: &Arc<RetirableProducer>, batch: &[Message]) -> (Vec<Outcome>, bool) {
        let everything = |outcome: &Outcome| vec![outcome.clone(); batch.len()];
        let targets = self.inner.targets(batch).await;
        if let Some(smallest) = targets.values().flatten().map(|target| target.message_bytes).min()
            && producer.batch_bytes() >= smallest
        {
            self.batch_bytes.store(batch_bytes(smallest), Ordering::Relaxed);
            let reason = "a topic accepts only smaller record batches; starting a producer that sends these";
            return (everything(&Outcome::retry_later(ErrorCode::UNAVAILABLE, reason)), false);
        }
        let begun = self.call(producer, |producer| producer.begin_transaction()).await;
        if let Err(cause) = begun {
            return (everything(&not_sent(cause.rdkafka_error_code(), &cause.to_string())), false);
        }
        let mut sequencer = KeySequencer::new(batch, Pipelining::InOrder);
        sequencer.refuse_unsent(|message| targets.get(&message.topic)?.as_ref().err().cloned());
        let reports = Arc::new(DeliveryReports::default());
        if producer.with(|send| self.inner.hand_over(send, &reports, &mut sequencer, &targets)).is_none() {
            return (everything(&not_sent(None, "the producer was retired")), false);
        }
        let in_time = tokio::time::timeout(self.options.timeout, reports.complete()).await.is_ok();
        let end = self.end(producer, in_time && !reports.has_failures()).await;
        for (index, outcome) in reports.take() {
            sequencer.settle(index, outcome);
        }
        let outcomes = sequencer.into_outcomes();
        match end {
            End::Committed => (outcomes, true),
            End::Aborted(code) => {
                let usable = code.is_none() && in_time && !producer.is_broken();
                (after_abort(outcomes, code), usable)
            }
            End::Unknown(cause) => {
                let unknown = Outcome::Unknown(format!("whether the transaction was committed is not known: {cause}"));
                let each = |outcome: Outcome| if outcome.is_accepted() { unknown.clone() } else { outcome };
                (outcomes.into_iter().map(each).collect(), false)
            }
        }
    }

    /// Commits, or aborts. A transaction whose commit was never requested is never read, even if the abort fails.
    async fn end(&self, producer: &Arc<RetirableProducer>, commit: bool) -> End {
        let timeout = self.options.timeout;
        if commit {
            match self.call(producer, move |producer| producer.commit_transaction(timeout)).await {
                Ok(()) => return End::Committed,
                Err(KafkaError::Transaction(cause)) if cause.txn_requires_abort() => {
                    tracing::warn!(%cause, "transaction not committed, aborting it");
                }
                Err(cause) => return End::Unknown(cause),
            }
        }
        match self.call(producer, move |producer| producer.abort_transaction(timeout)).await {
            Ok(()) => End::Aborted(None),
            Err(cause) if commit => End::Unknown(cause),
            Err(cause) => End::Aborted(cause.rdkafka_error_code().or(Some(RDKafkaErrorCode::Fail))),
        }
    }

    async fn call(
        &self,
        producer: &Arc<RetirableProducer>,
        call: impl FnOnce(&NativeProducer) -> KafkaResult<()> + Send + 'static,
    ) -> KafkaResult<()> {
        let retired = || KafkaError::Canceled;
        let producer = producer.producer().ok_or_else(retired)?;
        blocking(move || call(&producer)).await.unwrap_or_else(|_| Err(retired()))
    }

    fn producer(&self) -> MutexGuard<'_, Option<Arc<RetirableProducer>>> {
        self.producer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Publisher for FencedKafkaPublisher {
    async fn publish(&self, batch: &[Message]) -> Vec<Outcome> {
        if batch.is_empty() {
            return Vec::new();
        }
        let _one_at_a_time = self.transaction.lock().await;
        let Some(producer) = self.producer().clone() else {
            let outcome = Outcome::retry_later(ErrorCode::UNAVAILABLE, "the relay has to begin again");
            return vec![outcome; batch.len()];
        };
        let (outcomes, is_usable) = self.transact(&producer, batch).await;
        if !is_usable {
            self.producer().take();
            producer.retire().await;
        }
        outcomes
    }
}

#[async_trait]
impl FencedPublisher for FencedKafkaPublisher {
    async fn begin(&self) -> Result<()> {
        let _one_at_a_time = self.transaction.lock().await;
        let current = self.producer().clone();
        if let Some(producer) = current {
            if !producer.is_broken() {
                return Ok(());
            }
            self.producer().take();
            producer.retire().await;
        }
        let (options, holder) = (self.options.clone(), self.holder.clone());
        let batch_bytes = self.batch_bytes.load(Ordering::Relaxed);
        let producer = blocking(move || initialise(&options, &holder, batch_bytes)).await??;
        *self.producer() = Some(Arc::new(RetirableProducer::new(producer, batch_bytes)));
        Ok(())
    }

    async fn fence(&self, holder: &Holder) -> Result<()> {
        let (options, holder) = (self.options.clone(), holder.clone());
        blocking(move || initialise(&options, &holder, 1).map(drop)).await?
    }
}

/// Starts a producer under the `transactional.id` of `holder`, which fences every other. Blocks until an open
/// transaction under that id is aborted.
fn initialise(options: &Options, holder: &Holder, batch_bytes: usize) -> Result<NativeProducer> {
    let failed = |cause| error(format!("the producer of relay {holder} cannot be initialised now"), cause);
    let config = options.transactional_producer(holder, batch_bytes);
    let producer = NativeProducer::from_config_and_context(&config, ReportContext::default()).map_err(failed)?;
    // Aborting an open transaction takes a moment longer than reaching the cluster.
    let timeout = options.connect_timeout + Duration::from_secs(5);
    producer.init_transactions(timeout).map_err(failed)?;
    Ok(producer)
}

/// The outcome of a message that was not sent.
fn not_sent(code: Option<RDKafkaErrorCode>, reason: &str) -> Outcome {
    use RDKafkaErrorCode::{Fenced, InvalidProducerEpoch, ProducerFenced};
    match code {
        Some(Fenced | ProducerFenced | InvalidProducerEpoch) => {
            Outcome::retry_later(ErrorCode::FENCED, "another relay has taken over and fenced this one")
        }
        _ => Outcome::retry_later(ErrorCode::UNAVAILABLE, reason),
    }
}

/// The outcomes of an aborted transaction: messages that caused the abort keep their refusal, and the others count as
/// not sent.
fn after_abort(outcomes: Vec<Outcome>, code: Option<RDKafkaErrorCode>) -> Vec<Outcome> {
    let fenced = |outcome: &Outcome| matches!(outcome, Outcome::Refused(refusal) if refusal.code == ErrorCode::FENCED);
    let is_fenced = outcomes.iter().any(fenced);
    let is_to_blame = |outcome: &Outcome| matches!(outcome, Outcome::Refused(_)) && !fenced(outcome);
    let rest = match outcomes.iter().any(is_to_blame) {
        _ if is_fenced => not_sent(Some(RDKafkaErrorCode::Fenced), ""),
        true => Outcome::behind_predecessor(),
        false => not_sent(code, "the transaction was not finished in time and was aborted"),
    };
    outcomes.into_iter().map(|outcome| if is_to_blame(&outcome) { outcome } else { rest.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use landfall_core::Position;

    use super::*;

    fn accepted() -> Outcome {
        Outcome::Accepted(Position { partition: 0, offset: 1 })
    }

    #[test]
    fn an_abort_accepts_nothing_and_refuses_only_its_cause() {
        let too_large = || Outcome::refuse(ErrorCode::TOO_LARGE, "no");
        let found = after_abort(vec![accepted(), too_large(), Outcome::Unknown("purged".into())], None);
        assert_eq!(found, [Outcome::behind_predecessor(), too_large(), Outcome::behind_predecessor()]);
    }

    #[test]
    fn a_fenced_producer_refuses_every_message_as_fenced() {
        let fenced = || Outcome::retry_later(ErrorCode::FENCED, "Kafka: fenced");
        for found in [
            after_abort(vec![accepted(), fenced()], None),
            after_abort(vec![accepted(), accepted()], Some(RDKafkaErrorCode::Fenced)),
        ] {
            let codes: Vec<_> = found
                .iter()
                .map(|outcome| matches!(outcome, Outcome::Refused(r) if r.code == ErrorCode::FENCED))
                .collect();
            assert_eq!(codes, [true, true], "{found:?}");
        }
    }

    #[test]
    fn a_timeout_refuses_every_message_as_unavailable() {
        let found = after_abort(vec![accepted(), Outcome::Unknown("late".into())], None);
        assert!(
            found.iter().all(|o| matches!(o, Outcome::Refused(r) if r.code == ErrorCode::UNAVAILABLE)),
            "{found:?}"
        );
    }
}
