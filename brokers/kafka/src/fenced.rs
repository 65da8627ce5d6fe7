//! A publisher that others can silence: each batch is a transaction under a name that is the relay's own.
//!
//! Whoever starts a producer under the same name ends the transaction that is open and takes the right to speak from the
//! one before; the cluster sees to both (`docs/adr/0020-kafka-fence-stale-relays.md`).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use landfall_core::{ErrorCode, FencedPublisher, Holder, Message, Outcome, Publisher, Result};
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::producer::Producer;

use crate::client::blocking;
use crate::config::Options;
use crate::error::error;
use crate::handed::{Handed, Reports};
use crate::line::{BATCH_BYTES, Line, Native, batch_bytes};
use crate::publisher::KafkaPublisher;
use crate::topics::Topics;

pub(crate) struct FencedKafkaPublisher {
    options: Arc<Options>,
    /// Knows the topics and puts messages into records; its own producer is never made.
    inner: KafkaPublisher,
    holder: Holder,
    line: Mutex<Option<Arc<Line>>>,
    /// One transaction at a time.
    turn: tokio::sync::Mutex<()>,
    /// What the next producer may send in one piece.
    batch_bytes: AtomicUsize,
}

/// How a transaction ended.
enum End {
    Committed,
    /// Nobody will ever read any of it. With the error code, if it was the cluster that did not let it go on.
    Aborted(Option<RDKafkaErrorCode>),
    Unknown(KafkaError),
}

impl FencedKafkaPublisher {
    pub(crate) fn new(options: Arc<Options>, topics: Arc<Topics>, holder: Holder) -> Self {
        let inner = KafkaPublisher::new(options.clone(), topics);
        let batch_bytes = AtomicUsize::new(BATCH_BYTES.min(options.message_bytes));
        Self { options, inner, holder, line: Mutex::default(), turn: tokio::sync::Mutex::default(), batch_bytes }
    }

    /// Publishes one batch in one transaction; `false` with its outcomes if the producer is of no more use.
    async fn transact(&self, line: &Arc<Line>, batch: &[Message]) -> (Vec<Outcome>, bool) {
        let everything = |outcome: &Outcome| vec![outcome.clone(); batch.len()];
        let targets = self.inner.targets(batch).await;
        if let Some(smallest) = targets.values().flatten().map(|target| target.message_bytes).min()
            && line.batch_bytes() >= smallest
        {
            self.batch_bytes.store(batch_bytes(smallest), Ordering::Relaxed);
            let reason = "a topic takes less in one piece than others; begins anew with smaller pieces";
            return (everything(&Outcome::retry_later(ErrorCode::UNAVAILABLE, reason)), false);
        }
        let begun = self.ask(line, |producer| producer.begin_transaction()).await;
        if let Err(cause) = begun {
            return (everything(&not_sent(cause.rdkafka_error_code(), &cause.to_string())), false);
        }
        let handed = Handed::new(vec![None; batch.len()]);
        if !line.with(|send| self.inner.hand_over(send, &handed, batch, &targets)) {
            return (everything(&not_sent(None, "the producer was given up")), false);
        }
        let in_time = tokio::time::timeout(self.options.timeout, handed.finish()).await.is_ok();
        let end = self.end(line, in_time && !handed.has_lost_any()).await;
        // What comes in later changes nothing.
        let known = handed.take();
        match end {
            End::Committed => (known.into_iter().flatten().collect(), true),
            End::Aborted(code) => {
                let usable = code.is_none() && in_time && !line.is_broken();
                (after_abort(known.into_iter().flatten().collect(), code), usable)
            }
            End::Unknown(cause) => {
                let unknown = Outcome::Unknown(format!("whether the transaction was committed is not known: {cause}"));
                let of = |outcome: Outcome| if outcome.is_accepted() { unknown.clone() } else { outcome };
                (known.into_iter().flatten().map(of).collect(), false)
            }
        }
    }

    /// Commits, or aborts. What was never asked to be committed is never read, whatever the abort comes to.
    async fn end(&self, line: &Arc<Line>, commit: bool) -> End {
        let timeout = self.options.timeout;
        if commit {
            match self.ask(line, move |producer| producer.commit_transaction(timeout)).await {
                Ok(()) => return End::Committed,
                Err(KafkaError::Transaction(cause)) if cause.txn_requires_abort() => {
                    tracing::warn!(%cause, "a transaction was not committed");
                }
                Err(cause) => return End::Unknown(cause),
            }
        }
        match self.ask(line, move |producer| producer.abort_transaction(timeout)).await {
            Ok(()) => End::Aborted(None),
            Err(cause) if commit => End::Unknown(cause),
            Err(cause) => End::Aborted(cause.rdkafka_error_code().or(Some(RDKafkaErrorCode::Fail))),
        }
    }

    async fn ask(
        &self,
        line: &Arc<Line>,
        question: impl FnOnce(&Native) -> KafkaResult<()> + Send + 'static,
    ) -> KafkaResult<()> {
        let given_up = || KafkaError::Canceled;
        let producer = line.producer().ok_or_else(given_up)?;
        blocking(move || question(&producer)).await.unwrap_or_else(|_| Err(given_up()))
    }

    fn line(&self) -> MutexGuard<'_, Option<Arc<Line>>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Publisher for FencedKafkaPublisher {
    async fn publish(&self, batch: &[Message]) -> Vec<Outcome> {
        if batch.is_empty() {
            return Vec::new();
        }
        let _turn = self.turn.lock().await;
        let Some(line) = self.line().clone() else {
            let outcome = Outcome::retry_later(ErrorCode::UNAVAILABLE, "the relay has to begin anew");
            return vec![outcome; batch.len()];
        };
        let (outcomes, is_usable) = self.transact(&line, batch).await;
        if !is_usable {
            self.line().take();
            line.give_up().await;
        }
        outcomes
    }
}

#[async_trait]
impl FencedPublisher for FencedKafkaPublisher {
    async fn begin(&self) -> Result<()> {
        let _turn = self.turn.lock().await;
        let current = self.line().clone();
        if let Some(line) = current {
            if !line.is_broken() {
                return Ok(());
            }
            self.line().take();
            line.give_up().await;
        }
        let (options, holder) = (self.options.clone(), self.holder.clone());
        let batch_bytes = self.batch_bytes.load(Ordering::Relaxed);
        let producer = blocking(move || speak_as(&options, &holder, batch_bytes)).await??;
        *self.line() = Some(Arc::new(Line::new(producer, batch_bytes)));
        Ok(())
    }

    async fn fence(&self, holder: &Holder) -> Result<()> {
        let (options, holder) = (self.options.clone(), holder.clone());
        blocking(move || speak_as(&options, &holder, 1).map(drop)).await?
    }
}

/// A producer that is the only one to speak as `holder` from now on. Blocks until what was open under that name is ended.
fn speak_as(options: &Options, holder: &Holder, batch_bytes: usize) -> Result<Native> {
    let failed = |cause| error(format!("nobody can speak as relay {holder} to the cluster now"), cause);
    let config = options.transactional_producer(holder, batch_bytes);
    let producer = Native::from_config_and_context(&config, Reports::default()).map_err(failed)?;
    // To end what is open takes a moment longer than to reach the cluster.
    let patience = options.connect_timeout + Duration::from_secs(5);
    producer.init_transactions(patience).map_err(failed)?;
    Ok(producer)
}

/// The outcome of something that never went out.
fn not_sent(code: Option<RDKafkaErrorCode>, reason: &str) -> Outcome {
    use RDKafkaErrorCode::{Fenced, InvalidProducerEpoch, ProducerFenced};
    match code {
        Some(Fenced | ProducerFenced | InvalidProducerEpoch) => {
            Outcome::retry_later(ErrorCode::FENCED, "another relay has taken over and silenced this one")
        }
        _ => Outcome::retry_later(ErrorCode::UNAVAILABLE, reason),
    }
}

/// What an aborted transaction means for each of its messages: those that brought it down keep the reason, and the others
/// are as good as never sent.
fn after_abort(outcomes: Vec<Outcome>, code: Option<RDKafkaErrorCode>) -> Vec<Outcome> {
    let fenced = |outcome: &Outcome| matches!(outcome, Outcome::Refused(refusal) if refusal.code == ErrorCode::FENCED);
    let is_fenced = outcomes.iter().any(fenced);
    let is_to_blame = |outcome: &Outcome| matches!(outcome, Outcome::Refused(_)) && !fenced(outcome);
    let rest = match outcomes.iter().any(is_to_blame) {
        _ if is_fenced => not_sent(Some(RDKafkaErrorCode::Fenced), ""),
        true => Outcome::behind_predecessor(),
        false => not_sent(code, "the transaction was not finished in time and was given up"),
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
    fn of_what_was_aborted_nothing_is_accepted_and_only_the_culprit_is_blamed() {
        let too_large = || Outcome::refuse(ErrorCode::TOO_LARGE, "no");
        let found = after_abort(vec![accepted(), too_large(), Outcome::Unknown("purged".into())], None);
        assert_eq!(found, [Outcome::behind_predecessor(), too_large(), Outcome::behind_predecessor()]);
    }

    #[test]
    fn one_that_was_silenced_says_so_for_all() {
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
    fn what_took_too_long_blames_nobody() {
        let found = after_abort(vec![accepted(), Outcome::Unknown("late".into())], None);
        assert!(
            found.iter().all(|o| matches!(o, Outcome::Refused(r) if r.code == ErrorCode::UNAVAILABLE)),
            "{found:?}"
        );
    }
}
