//! Delivers the notices of one channel: at least once, one delivery at a time, within the limits of its server.

use std::sync::Arc;
use std::time::Duration;

use landfall::{AlertQueue, ErrorKind, NoticeBatch, NoticeClaim, NoticeOutcome, Result, Timestamp};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::channel::{Sender, Verdict};
use super::evaluator::Holding;

/// The pause between two looks for due notices.
const POLL: Duration = Duration::from_secs(1);
/// The pause after a failed look at the database.
const BACKOFF: Duration = Duration::from_secs(2);
/// Delay after the first failed attempt; it doubles with each further one.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(300);
/// How long an attempt may take when the daemon stops.
const LAST_ATTEMPT: Duration = Duration::from_secs(2);

pub(super) struct Notifier {
    queue: Arc<dyn AlertQueue>,
    sender: Sender,
    holding: Holding,
    work: Arc<Notify>,
}

impl Notifier {
    pub(super) fn new(queue: Arc<dyn AlertQueue>, sender: Sender, holding: Holding, work: Arc<Notify>) -> Self {
        Self { queue, sender, holding, work }
    }

    pub(super) async fn run(self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            // Before the look, so that no wake-up is missed.
            let woken = self.work.notified();
            let pause = match self.step(&stop).await {
                Ok(true) => continue,
                Ok(false) => POLL,
                Err(error) if error.kind() == ErrorKind::Conflict => POLL,
                Err(error) => {
                    tracing::warn!(channel = %self.sender.name(), %error, "cannot read the notices of a channel");
                    BACKOFF
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = woken => {}
                () = stop.cancelled() => {}
            }
        }
    }

    /// Makes one attempt; returns whether there was one.
    async fn step(&self, stop: &CancellationToken) -> Result<bool> {
        if !self.holding.is_held() {
            return Ok(false);
        }
        let pace = self.sender.pace();
        let claim = NoticeClaim {
            channel: self.sender.name().to_owned(),
            now: Timestamp::now(),
            at_most: pace.at_most,
            spacing: pace.spacing,
            patience: self.sender.timeout() + Duration::from_secs(5),
        };
        let Some(batch) = self.queue.claim_notices(&claim).await? else { return Ok(false) };
        let stopping = async {
            stop.cancelled().await;
            tokio::time::sleep(LAST_ATTEMPT).await;
        };
        let verdict = tokio::select! {
            answer = self.sender.send(&batch) => answer.verdict,
            // Attempted again by the next daemon, under the same id.
            () = stopping => return Ok(false),
        };
        self.settle(&batch, verdict).await?;
        Ok(true)
    }

    async fn settle(&self, batch: &NoticeBatch, verdict: Verdict) -> Result<()> {
        let now = Timestamp::now();
        let outcome = outcome(batch, verdict, self.sender.give_up_after(), now);
        let channel = self.sender.name().to_owned();
        let name = match &outcome {
            NoticeOutcome::Delivered => "delivered",
            NoticeOutcome::Retry { error, .. } => {
                tracing::warn!(%channel, attempt = batch.attempt, %error, "notice not accepted, backing off");
                "retried"
            }
            NoticeOutcome::Hold { until, error } => {
                tracing::warn!(%channel, %until, %error, "channel of alerts accepts nothing for a time");
                "held"
            }
            NoticeOutcome::GivenUp { error } => {
                tracing::error!(%channel, delivery = %batch.id, %error, "notice of an alert given up");
                "given_up"
            }
        };
        if self.queue.settle_notices(batch, &outcome, now).await? {
            let notices = batch.notices.len() as u64;
            metrics::counter!("landfall_alert_notices_total", "channel" => channel, "outcome" => name)
                .increment(notices);
        }
        Ok(())
    }
}

/// Decides what follows from an answer. Nothing is given up before `give_up_after` unless the server refuses it.
fn outcome(batch: &NoticeBatch, verdict: Verdict, give_up_after: Duration, now: Timestamp) -> NoticeOutcome {
    let later = |wait: Duration| Timestamp::from_millis(now.as_millis() + wait.as_millis() as i64);
    let is_late = batch.created_at.elapsed_since(now) >= give_up_after;
    match verdict {
        Verdict::Accepted => NoticeOutcome::Delivered,
        Verdict::Refused(error) => NoticeOutcome::GivenUp { error },
        Verdict::Retry(error) | Verdict::Wait(_, error) if is_late => NoticeOutcome::GivenUp { error },
        Verdict::Retry(error) => {
            let doubled = FIRST_RETRY.saturating_mul(1 << batch.attempt.saturating_sub(1).min(16));
            NoticeOutcome::Retry { at: later(doubled.min(LONGEST_RETRY)), error }
        }
        Verdict::Wait(time, error) => NoticeOutcome::Hold { until: later(time), error },
    }
}

#[cfg(test)]
mod tests {
    use landfall::MessageId;

    use super::*;

    fn after(attempt: u32, age: Duration, verdict: Verdict) -> NoticeOutcome {
        let created_at = Timestamp::from_millis(1_000_000_000_000);
        let batch =
            NoticeBatch { id: MessageId::new(), channel: "ops".into(), attempt, created_at, notices: Vec::new() };
        let now = Timestamp::from_millis(created_at.as_millis() + age.as_millis() as i64);
        outcome(&batch, verdict, Duration::from_secs(3600), now)
    }

    #[test]
    fn retries_back_off_and_end() {
        let retry = || Verdict::Retry("HTTP 500".into());
        for (attempt, seconds) in [(1, 1), (2, 2), (3, 4), (9, 256), (10, 300), (u32::MAX, 300)] {
            let at = Timestamp::from_millis(1_000_000_000_000 + seconds * 1000);
            assert_eq!(after(attempt, Duration::ZERO, retry()), NoticeOutcome::Retry { at, error: "HTTP 500".into() });
        }
        let given_up = NoticeOutcome::GivenUp { error: "HTTP 500".into() };
        assert_eq!(after(99, Duration::from_secs(3600), retry()), given_up);
        assert_eq!(after(1, Duration::ZERO, Verdict::Refused("HTTP 500".into())), given_up);
        let until = Timestamp::from_millis(1_000_000_600_000);
        let wait = Verdict::Wait(Duration::from_secs(600), "130101".into());
        assert_eq!(after(5, Duration::ZERO, wait), NoticeOutcome::Hold { until, error: "130101".into() });
        assert_eq!(after(5, Duration::from_secs(9999), Verdict::Accepted), NoticeOutcome::Delivered);
    }
}
