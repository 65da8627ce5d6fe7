//! One attempt: claim the record, run the work under a renewed lease, settle.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use landfall_core::Result;
use landfall_core::idempotency::{Claim, Epoch, Fingerprint, IdempotencyRecords, Identity, Outcome, Settled, Snapshot};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::counters::{Counted, count};
use super::engine::{Answer, Codec, Policy, Work, in_flight};
use super::error::Error;
use super::flights::Flight;
use crate::call_deadline::CallDeadline;

/// The running attempt, for the work.
#[derive(Debug, Clone)]
pub struct Attempt {
    epoch: Epoch,
    lost: CancellationToken,
}

impl Attempt {
    /// The fencing number: higher than that of every earlier attempt. Compare it in the writes that the work protects,
    /// and derive the idempotency keys of calls to others from the identity, not from this.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Completes when this attempt has lost its lease: another one may be running. Stop if that is possible.
    pub async fn lost(&self) {
        self.lost.cancelled().await;
    }

    pub fn is_lost(&self) -> bool {
        self.lost.is_cancelled()
    }
}

/// The first and the longest pause between two looks at a record that another process holds.
const POLL: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(250));

pub(super) struct Attempting<T> {
    pub(super) records: Arc<dyn IdempotencyRecords>,
    pub(super) identity: Identity,
    pub(super) fingerprint: Fingerprint,
    pub(super) policy: Policy,
    pub(super) deadline: Instant,
    pub(super) codec: Codec<T>,
}

type Caller<T, E> = oneshot::Sender<Result<Answer<T>, Error<E>>>;

impl<T: Send + 'static> Attempting<T> {
    pub(super) async fn run<E, F, Fut>(
        self,
        flight: Flight,
        caller: &mut Caller<T, E>,
        work: F,
    ) -> Result<Answer<T>, Error<E>>
    where
        E: Send + 'static,
        F: FnOnce(Attempt) -> Fut + Send + 'static,
        Fut: Future<Output = Work<T, E>> + Send + 'static,
    {
        let epoch = match self.claim(caller).await? {
            Claimed::Now(epoch) => epoch,
            Claimed::Before(answer) => {
                flight.done(answer.clone());
                self.count(Counted::Replayed);
                return Ok(Answer { value: (self.codec.decode)(answer)?, is_replayed: true });
            }
        };
        flight.claimed();
        fail::fail_point!("idempotency.after-claim");
        let worked = self.work(epoch, work).await;
        fail::fail_point!("idempotency.after-work");
        self.settle(flight, epoch, worked).await
    }

    fn count(&self, result: Counted) {
        count(result, self.identity.business_type());
    }

    /// Claims the record; waits while another process holds it.
    async fn claim<E>(&self, caller: &Caller<T, E>) -> Result<Claimed, Error<E>> {
        let mut pause = POLL.0;
        loop {
            if caller.is_closed() {
                // Nothing has begun, and no caller is left that wants it.
                return Err(Error::Aborted);
            }
            let claim = self.records.claim_record(&self.identity, &self.fingerprint, &self.policy.terms);
            let claim = CallDeadline::STATEMENT.run(claim).await.inspect_err(|_| self.count(Counted::StoreError))?;
            let remaining = match claim {
                Claim::Claimed { epoch } => return Ok(Claimed::Now(epoch)),
                Claim::Completed(answer) => return Ok(Claimed::Before(answer)),
                Claim::InFlight { remaining } => remaining,
                refused => {
                    let (counted, error) = refusal(refused);
                    self.count(counted);
                    return Err(error);
                }
            };
            if Instant::now() >= self.deadline {
                self.count(Counted::Conflict);
                return Err(in_flight(remaining));
            }
            sleep(pause.min(self.deadline.saturating_duration_since(Instant::now()))).await;
            pause = (pause * 2).min(POLL.1);
        }
    }

    /// Runs the work while a task renews its lease. `None` if it panicked.
    async fn work<E, F, Fut>(&self, epoch: Epoch, work: F) -> Option<Work<T, E>>
    where
        F: FnOnce(Attempt) -> Fut,
        Fut: Future<Output = Work<T, E>>,
    {
        let (lost, stop) = (CancellationToken::new(), CancellationToken::new());
        let heartbeat = tokio::spawn(heartbeat(
            self.records.clone(),
            self.identity.clone(),
            epoch,
            self.policy.terms.lease,
            lost.clone(),
            stop.clone(),
        ));
        let attempt = Attempt { epoch, lost };
        // Also if the closure itself panics, before there is a future.
        let worked = AssertUnwindSafe(async move { work(attempt).await }).catch_unwind().await;
        stop.cancel();
        // A renewal under way must not come after the settle.
        let _ = heartbeat.await;
        worked.ok()
    }

    async fn settle<E>(self, flight: Flight, epoch: Epoch, worked: Option<Work<T, E>>) -> Result<Answer<T>, Error<E>> {
        let (outcome, result) = match worked {
            Some(Work::Done(value)) => match (self.codec.encode)(&value) {
                Ok(answer) => (Outcome::Done(answer), Ok(value)),
                Err(error) => (Outcome::Unknown(error.to_string()), Err(Error::Value(error))),
            },
            Some(Work::NothingDone(error)) => (Outcome::NothingDone, Err(Error::Work(error))),
            Some(Work::Unknown(error)) => (Outcome::Unknown("the work reported it".into()), Err(Error::Work(error))),
            None => (Outcome::Unknown("the work panicked".into()), Err(Error::Aborted)),
        };
        let is_unknown = matches!(outcome, Outcome::Unknown(_));
        match self.settle_until_known(epoch, &outcome).await {
            Ok(Settled::Recorded) => self.count(if is_unknown { Counted::Uncertain } else { Counted::Executed }),
            Ok(Settled::Lost(winner)) => {
                self.count(Counted::Fenced);
                let winner = winner.ok_or(Error::Fenced)?;
                flight.done(winner.clone());
                return Ok(Answer { value: (self.codec.decode)(winner)?, is_replayed: true });
            }
            Err(error) => {
                // The work is done, and its caller is told so. A repeat finds the lease, then follows the policy.
                self.count(Counted::StoreError);
                tracing::error!(%error, identity = %self.identity, epoch, "idempotency record not settled");
            }
        }
        let value = result?;
        if let Outcome::Done(answer) = outcome {
            flight.done(answer);
        }
        Ok(Answer { value, is_replayed: false })
    }

    /// Settles, again and again while the store fails and the lease may last. A settle is idempotent.
    async fn settle_until_known(&self, epoch: Epoch, outcome: &Outcome) -> Result<Settled> {
        let deadline = Instant::now() + self.policy.terms.lease;
        let mut pause = POLL.0;
        loop {
            let settle = self.records.settle_record(&self.identity, epoch, outcome);
            match CallDeadline::STATEMENT.run(settle).await {
                Err(error) if error.is_temporary() && Instant::now() + pause < deadline => {
                    tracing::warn!(%error, "idempotency store unavailable, backing off");
                    sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(1));
                }
                settled => return settled,
            }
        }
    }
}

enum Claimed {
    Now(Epoch),
    Before(Snapshot),
}

/// Translates a claim that is refused for good.
pub(super) fn refusal<E>(claim: Claim) -> (Counted, Error<E>) {
    match claim {
        Claim::Mismatch => (Counted::Mismatch, Error::Mismatch),
        Claim::NotIssued => (Counted::Conflict, Error::NotIssued),
        Claim::InFlight { remaining } => (Counted::Conflict, in_flight(remaining)),
        Claim::Uncertain | Claim::Claimed { .. } | Claim::Completed(_) => (Counted::Uncertain, Error::Uncertain),
    }
}

/// Renews the lease every third of it, until `stop`. Cancels `lost` when another attempt has it, or at the ceiling.
async fn heartbeat(
    records: Arc<dyn IdempotencyRecords>,
    identity: Identity,
    epoch: Epoch,
    lease: Duration,
    lost: CancellationToken,
    stop: CancellationToken,
) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = sleep(lease / 3) => {}
        }
        match CallDeadline::for_lease(lease).run(records.renew_record(&identity, epoch, lease)).await {
            Ok(Some(_)) => {}
            Ok(None) => {
                tracing::warn!(%identity, epoch, "idempotent attempt lost its lease");
                lost.cancel();
                return;
            }
            Err(error) => tracing::warn!(%error, %identity, "lease of an idempotent attempt not renewed, retrying"),
        }
    }
}
