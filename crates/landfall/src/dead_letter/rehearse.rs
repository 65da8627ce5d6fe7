//! Answers requests for rehearsals of this group's dead letters.

use std::sync::Arc;
use std::time::Duration;

use landfall_core::adapter::RehearsalTask;
use landfall_core::{Database, ErrorCode, Failure, Inbox, Message, Rehearsals, Result};
use tokio_util::sync::CancellationToken;

use super::unreadable;
use crate::call_deadline::CallDeadline;
use crate::consume::{MessageTransaction, rehearsal_refusal, sleep_unless_stopped};

/// How long a handler may take. A rehearsal keeps the locks of its transaction.
const RUN_LIMIT: Duration = Duration::from_secs(30);
/// Another consumer runs the letter after this time, if this one crashed.
const CLAIM: Duration = Duration::from_secs(60);

/// Runs the handler for one letter at a time, each in a transaction that is rolled back.
pub(crate) struct Rehearser<D: Database> {
    pub(crate) transaction: Arc<MessageTransaction<D>>,
    pub(crate) rehearsals: Arc<dyn Rehearsals>,
    pub(crate) poll: Duration,
}

impl<D: Inbox> Rehearser<D> {
    /// Works until `stop` is cancelled.
    pub(crate) async fn run(self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            let next = tokio::select! {
                next = self.rehearse_next() => next,
                // A rehearsal may be cut off: it leaves nothing behind.
                () = stop.cancelled() => return,
            };
            match next {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "rehearsals unavailable, backing off"),
            }
            sleep_unless_stopped(self.poll, &stop).await;
        }
    }

    /// Rehearses the next letter; returns whether there was one.
    async fn rehearse_next(&self) -> Result<bool> {
        let group = &self.transaction.inbox.group;
        let claimed = self.rehearsals.claim_rehearsal(group, CLAIM);
        let Some(task) = CallDeadline::STATEMENT.run(claimed).await? else { return Ok(false) };
        let RehearsalTask { message, attempts, letter, .. } = &task;
        let result = match unreadable::refusal(message) {
            Some(failure) => rehearsal_refusal(&failure),
            None => match tokio::time::timeout(RUN_LIMIT, self.transaction.rehearse(message, *attempts)).await {
                Ok(result) => result?,
                Err(_) => {
                    let error = format!("the handler did not finish within {} seconds", RUN_LIMIT.as_secs());
                    rehearsal_refusal(&Failure::retry(error).with_code(ErrorCode::TIMEOUT))
                }
            },
        };
        let Message { id: message_id, topic, .. } = message;
        let (dead_letter, outcome) = (letter, result.outcome.as_str());
        tracing::info!(%message_id, %topic, %group, dead_letter, outcome, "dead letter rehearsed");
        CallDeadline::STATEMENT.run(self.rehearsals.record_rehearsal(&task, &result)).await?;
        Ok(true)
    }
}
