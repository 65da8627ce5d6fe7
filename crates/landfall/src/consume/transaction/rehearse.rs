//! Rehearses a dead letter: the routine of a redrive, rolled back.

use landfall_core::{ErrorCode, Failure, Inbox, Message, RehearsalResult, Rehearsed, Result};

use super::{GroupInbox, MessageTransaction, SequenceDecision, TransactionError, refused_by_database};
use crate::call_deadline::CallDeadline;
use crate::consume::dedup::is_already_done;
use crate::consume::handler::{Attempt, BatchFailure, HandlerCall};

impl<D: Inbox> MessageTransaction<D> {
    /// Runs the handler for the message of a dead letter, and rolls back what it wrote. Fails only if the database
    /// does.
    pub(crate) async fn rehearse(&self, message: &Message, attempts: u32) -> Result<RehearsalResult> {
        let attempt = Attempt { number: attempts.saturating_add(1), since_redrive: 1, is_rehearsal: true };
        let mut transaction = self.inbox.database.begin().await?;
        let outcome = self.try_out(&mut transaction, message, attempt).await;
        // Rolls back.
        drop(transaction);
        match outcome {
            Ok(outcome) => Ok(outcome.into()),
            Err(TransactionError::Failed(failed)) => Ok(refusal(&failed.failure)),
            Err(TransactionError::Unreachable(error) | TransactionError::Database(error)) => Err(error),
        }
    }

    /// Everything that a redrive does before it completes the letter.
    async fn try_out(
        &self,
        connection: &mut D::Connection,
        message: &Message,
        attempt: Attempt,
    ) -> std::result::Result<Rehearsed, TransactionError> {
        let messages = [message];
        let decisions = self.sequence.decide(&self.inbox, connection, &messages).await?;
        if let Some(failure) = decisions.iter().find_map(|decision| decision.failure(message)) {
            return Err(BatchFailure { index: None, failure }.into());
        }
        if decisions.contains(&SequenceDecision::Duplicate) {
            return Ok(Rehearsed::Duplicate);
        }
        let GroupInbox { database, group, .. } = &self.inbox;
        // Never called: what the handler enqueued is rolled back, too.
        let mut after_commit = None;
        let after_commit = &mut after_commit;
        let call =
            HandlerCall { messages: &messages, connection: &mut *connection, attempt, database, group, after_commit };
        match self.handler.run(call).await {
            Err(BatchFailure { failure, .. }) if is_already_done(&failure) => return Ok(Rehearsed::Duplicate),
            called => called?,
        }
        // Refused where the handler ignored a database error, which has aborted the transaction.
        refused_by_database(CallDeadline::STATEMENT.run(database.check_commit(connection)).await)?;
        Ok(Rehearsed::Succeeds)
    }
}

/// Returns the result of a message that would not take effect.
pub(crate) fn refusal(failure: &Failure) -> RehearsalResult {
    let outcome = match &failure.code {
        code if *code == ErrorCode::VERSION_CONFLICT => Rehearsed::Stale,
        code if *code == ErrorCode::OUT_OF_ORDER => Rehearsed::Blocked,
        _ => Rehearsed::Fails,
    };
    RehearsalResult {
        outcome,
        error_code: Some(failure.code.to_string()),
        error: Some(failure.error.clone()),
        fingerprint: Some(failure.fingerprint()),
    }
}
