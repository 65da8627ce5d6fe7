//! The loop of the coordinator: claim, ask, decide.

use std::sync::Arc;
use std::time::Duration;

use landfall_core::{
    AfterCheck, Backoff, Decided, DueCheck, Error, ErrorKind, HalfMessage, HalfMessageRow, HalfMessages, HalfVerdict,
    Message, MessageId, Result,
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Answer, Options, Targets};
use crate::call_deadline::CallDeadline;

/// The name under which a check-back decides, in the audit and in metrics.
const ACTOR: &str = "check-back";

/// Decides undecided half messages by asking their targets. Any number of coordinators may run on one database.
///
/// ```
/// use std::sync::Arc;
///
/// use landfall::check_back::{Coordinator, Options, Targets};
/// use landfall::prelude::*;
/// use landfall::sqlite::{self, Sqlite};
/// use tokio_util::sync::CancellationToken;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = Sqlite::open("sqlite::memory:", sqlite::Options::default()).await?;
/// store.migrate().await?;
/// let shop = Sqlite::open("sqlite::memory:", sqlite::Options::default()).await?;
/// shop.migrate().await?;
/// let targets = Targets::new().database("shop", Arc::new(shop));
/// let coordinator = Coordinator::new(Arc::new(store), targets, Options::default())?;
/// let stop = CancellationToken::new();
/// # stop.cancel();
/// coordinator.run(stop).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Coordinator {
    store: Arc<dyn HalfMessages>,
    targets: Targets,
    options: Options,
}

impl Coordinator {
    /// Works on the half messages of `store`. Fails with kind `Invalid` if an option is out of range.
    pub fn new(store: Arc<dyn HalfMessages>, targets: Targets, options: Options) -> Result<Self> {
        options.check()?;
        Ok(Self { store, targets, options })
    }

    /// Works until `stop` is cancelled. Then it gives up questions in flight, which are asked again after their claim
    /// expires, and finishes what it writes.
    ///
    /// While the database is unavailable it backs off. Fails only on errors that are not temporary, such as a schema
    /// that this build does not support.
    pub async fn run(self, stop: CancellationToken) -> Result<()> {
        let stop = stop.child_token();
        let mut checks = JoinSet::new();
        let result = self.claim_and_check(&mut checks, &stop).await;
        stop.cancel();
        while let Some(ended) = checks.join_next().await {
            log_panic(ended);
        }
        if let Err(error) = &result {
            // Logged here as well, because the caller may not await the coordinator's task.
            tracing::error!(%error, "check-back stopped; undecided half messages wait");
        }
        result
    }

    /// Asks about one undecided message now, whenever its next check-back is due, and decides if the answer is known.
    ///
    /// An unknown answer changes nothing and is not counted.
    pub async fn check_now(&self, row: &HalfMessageRow) -> Result<(Answer, Option<Decided>)> {
        let Some(topic) = row.topic.clone() else {
            return Err(Error::new(ErrorKind::Conflict, format!("half message {} is not prepared yet", row.id)));
        };
        let half = HalfMessage {
            // Targets are asked about the id and the business, not about the payload.
            message: Message::new(topic, "").with_id(row.id),
            business_type: row.business_type.clone(),
            business_id: row.business_id.clone(),
            check_back: row.check_back.clone(),
            check_after: Duration::ZERO,
        };
        let answer = self.targets.ask(&half, row.prepared_at, self.options.timeout).await;
        let decided = match answer.verdict() {
            Some(verdict) => Some(decide(&*self.store, row.id, verdict, ACTOR).await?),
            None => None,
        };
        Ok((answer, decided))
    }

    async fn claim_and_check(&self, checks: &mut JoinSet<()>, stop: &CancellationToken) -> Result<()> {
        let mut outages = 0_u32;
        while !stop.is_cancelled() {
            while let Some(ended) = checks.try_join_next() {
                log_panic(ended);
            }
            let free = self.options.concurrency.saturating_sub(checks.len());
            if free == 0 {
                tokio::select! { Some(ended) = checks.join_next() => log_panic(ended), () = stop.cancelled() => {} }
                continue;
            }
            let claim = CallDeadline::STATEMENT.run(self.store.claim_due(free, self.options.lease())).await;
            let wait = match claim {
                Ok(due) => {
                    outages = 0;
                    if due.is_empty() {
                        self.options.interval
                    } else {
                        fail::fail_point!("check-back.after-claim");
                        for due in due {
                            checks.spawn(self.clone().check(due, stop.clone()));
                        }
                        continue;
                    }
                }
                Err(error) if error.is_temporary() => {
                    outages += 1;
                    let pause = pause_after(outages);
                    tracing::warn!(%error, ?pause, "half messages unavailable, backing off");
                    pause
                }
                Err(error) => return Err(error),
            };
            tokio::select! { () = tokio::time::sleep(wait) => {}, () = stop.cancelled() => {} }
        }
        Ok(())
    }

    /// Checks one claimed message. A failed write is left to the next claim.
    async fn check(self, due: DueCheck, stop: CancellationToken) {
        let id = due.half.message.id;
        let answer = tokio::select! {
            answer = self.targets.ask(&due.half, due.prepared_at, self.options.timeout) => answer,
            () = stop.cancelled() => return,
        };
        metrics::counter!("landfall_half_checks_total", "answer" => answer.as_str()).increment(1);
        fail::fail_point!("check-back.after-answer");
        let written = match answer.verdict() {
            Some(verdict) => decide(&*self.store, id, verdict, ACTOR).await.map(drop),
            None => self.record(&due, &answer).await,
        };
        fail::fail_point!("check-back.after-write");
        if let Err(error) = written {
            tracing::warn!(%id, %error, "recording a check-back failed; it is repeated");
        }
    }

    async fn record(&self, due: &DueCheck, answer: &Answer) -> Result<()> {
        let id = due.half.message.id;
        let reason = match answer {
            Answer::Unknown(reason) => reason.as_str(),
            known => known.as_str(),
        };
        let after = match self.options.backoff.delay_after(due.checks.saturating_add(1), rand::random()) {
            Some(pause) => AfterCheck::Again(pause),
            None => AfterCheck::Park,
        };
        CallDeadline::STATEMENT.run(self.store.record_check(id, due.checks, reason, after)).await?;
        match after {
            AfterCheck::Again(pause) => tracing::info!(%id, %reason, ?pause, "check-back without an answer"),
            AfterCheck::Park => {
                metrics::counter!("landfall_half_parked_total").increment(1);
                tracing::error!(%id, %reason, "half message parked; decide with `landfall half`");
            }
        }
        Ok(())
    }
}

/// Decides and counts the decision. A contradiction is logged; the store has recorded it.
///
/// Every way to decide ends here, so that the metrics cover all of them. `by` is the actor for the audit.
pub(crate) async fn decide(store: &dyn HalfMessages, id: MessageId, verdict: HalfVerdict, by: &str) -> Result<Decided> {
    let decided = CallDeadline::STATEMENT.run(store.decide(id, verdict, by)).await?;
    let name = verdict.state().as_str();
    match decided {
        Decided::Now | Decided::Early => {
            // Names of people are no labels: they would be without bound.
            let by = if matches!(by, ACTOR | crate::half::SENDER) { by.to_owned() } else { "operator".to_owned() };
            metrics::counter!("landfall_half_decided_total", "verdict" => name, "by" => by).increment(1);
        }
        Decided::Contradiction(first) => {
            tracing::error!(%id, by, verdict = name, first = first.state().as_str(), "contradicts the first verdict");
        }
        Decided::Before => {}
    }
    Ok(decided)
}

/// The pause after `outages` consecutive outages.
fn pause_after(outages: u32) -> Duration {
    let cap = Duration::from_secs(5);
    let backoff = Backoff { first: Duration::from_millis(200), cap, max_attempts: u32::MAX };
    backoff.delay_after(outages, rand::random()).unwrap_or(cap)
}

fn log_panic(ended: std::result::Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "check-back task exited unexpectedly; this is a bug");
    }
}

impl std::fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Coordinator")
            .field("targets", &self.targets)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
