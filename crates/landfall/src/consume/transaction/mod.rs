//! The transaction in which messages take effect: inbox rows, sequence numbers and the handler's writes commit
//! together.
//!
//! ```text
//!   admit ─▶ check sequence numbers ─▶ call the handler ─▶ commit ─▶ wake waiting successors
//!     │ duplicate, held   │ duplicate, stale: parked here   │ fails: roll back
//!     └───────────────────┴── skip the handler
//! ```
//!
//! Deliveries and redriven dead letters run through the same routine. They differ in what makes a copy harmless: a
//! delivery inserts its inbox row, a dead letter is locked by the transaction and marked as done.

mod group_inbox;
mod rehearse;

use std::sync::Arc;

use landfall_core::adapter::{Admission, Arrival, Hold, Parking, RedriveItem};
use landfall_core::{Database, Error, ErrorKind, Failure, Inbox, Message, Result, Verdict};

use crate::call_deadline::CallDeadline;
use crate::consume::dedup::is_already_done;
use crate::consume::handler::{AfterCommit, Attempt, BatchFailure, HandlerCall, HandlerRunner};
use crate::consume::options::Idempotence;
use crate::consume::outcome::Handled;
use crate::consume::sequence::{SequenceDecision, SequenceGuard};
use crate::dead_letter::DeadLetterWriter;

pub(crate) use group_inbox::GroupInbox;
pub(crate) use rehearse::refusal as rehearsal_refusal;

/// Runs messages through the handler, one transaction at a time.
pub(crate) struct MessageTransaction<D: Database> {
    pub(crate) inbox: GroupInbox<D>,
    pub(crate) handler: Arc<dyn HandlerRunner<D>>,
    pub(crate) sequence: Arc<SequenceGuard<D>>,
    pub(crate) dead_letters: Arc<DeadLetterWriter<D>>,
}

/// The messages of one transaction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Input<'a> {
    pub(crate) arrivals: &'a [Arrival<'a>],
    /// The dead letter that `arrivals` holds, if it is one. The transaction has locked its row.
    pub(crate) dead_letter: Option<&'a RedriveItem>,
}

/// What [`MessageTransaction::apply`] wrote and [`MessageTransaction::finish`] commits.
pub(crate) struct Applied {
    outcomes: Vec<Handled>,
    ending: Ending,
    after_commit: AfterCommit,
}

/// How a transaction ends when no message failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// It wrote a row.
    Commit,
    /// It may have written nothing, because of what other transactions wrote: their commits must be durable first.
    CommitSeen,
    /// Every message was a duplicate. Nothing to commit; the earlier commits must be durable before an acknowledgement.
    Flush,
    /// The handler found its effect in its own tables and asked for a rollback.
    AlreadyDone,
}

/// Why a transaction was rolled back.
#[derive(Debug)]
pub(crate) enum TransactionError {
    /// A message failed.
    Failed(Box<BatchFailure>),
    /// The database could not begin a transaction.
    Unreachable(Error),
    /// The database failed. No attempt is counted. Includes a commit whose outcome is unknown: if it happened, the next
    /// attempt finds the inbox rows.
    Database(Error),
}

impl From<Error> for TransactionError {
    fn from(error: Error) -> Self {
        Self::Database(error)
    }
}

impl From<BatchFailure> for TransactionError {
    fn from(failed: BatchFailure) -> Self {
        Self::Failed(Box::new(failed))
    }
}

/// One outcome for each message, in order.
pub(crate) type TransactionResult = Result<Vec<Handled>, TransactionError>;

impl<D: Inbox> MessageTransaction<D> {
    /// Runs deliveries in a transaction of their own.
    pub(crate) async fn run(&self, arrivals: &[Arrival<'_>], attempt: u32) -> TransactionResult {
        let attempt = Attempt { number: attempt, since_redrive: attempt, is_rehearsal: false };
        let mut transaction = self.inbox.database.begin().await.map_err(TransactionError::Unreachable)?;
        let input = Input { arrivals, dead_letter: None };
        let applied = self.apply(&mut transaction, input, attempt).await?;
        self.finish(transaction, input, applied).await
    }

    /// Everything up to the commit. On error the caller rolls back by dropping the transaction.
    pub(crate) async fn apply(
        &self,
        connection: &mut D::Connection,
        input: Input<'_>,
        attempt: Attempt,
    ) -> Result<Applied, TransactionError> {
        let admissions = self.admit(connection, input).await?;
        let outcomes = self.check_sequence(connection, input, &admissions).await?;
        let mut after_commit = None;
        match self.call_handler(connection, input, &outcomes, attempt, &mut after_commit).await {
            // Single message only: a batch does not say which one was the duplicate.
            Err(BatchFailure { failure, .. }) if input.arrivals.len() == 1 && is_already_done(&failure) => {
                return Ok(Applied { outcomes, ending: Ending::AlreadyDone, after_commit: None });
            }
            called => called?,
        }
        self.complete(connection, input).await?;
        Ok(Applied { ending: self.ending(input, &admissions), outcomes, after_commit })
    }

    /// Commits what [`MessageTransaction::apply`] wrote, then wakes the relay and successors that wait.
    pub(crate) async fn finish(
        &self,
        transaction: D::Transaction,
        input: Input<'_>,
        applied: Applied,
    ) -> TransactionResult {
        let Applied { outcomes, ending, after_commit } = applied;
        let database = &self.inbox.database;
        let committed = match ending {
            Ending::AlreadyDone => return self.record_already_done(transaction, input).await,
            Ending::Flush => {
                database.flush(transaction).await?;
                return Ok(outcomes);
            }
            Ending::Commit => database.commit(transaction).await,
            Ending::CommitSeen => database.commit_seen(transaction).await,
        };
        refused_by_database(committed)?;
        if let Some(after_commit) = after_commit {
            after_commit();
        }
        let applied = input.arrivals.iter().zip(&outcomes).filter(|(_, outcome)| **outcome == Handled::Effect);
        self.sequence.notify_successors(applied.map(|(arrival, _)| arrival.message));
        let parked = outcomes.iter().filter(|outcome| **outcome == Handled::Parked).count();
        if parked > 0 {
            metrics::counter!("landfall_dlq_in_total").increment(parked as u64);
            self.dead_letters.wake_relay();
        }
        Ok(outcomes)
    }

    async fn admit(&self, connection: &mut D::Connection, input: Input<'_>) -> Result<Vec<Admission>> {
        match input.dead_letter {
            // Its inbox row has been there since it was parked.
            Some(_) => Ok(vec![Admission::Fresh]),
            None => self.inbox.admit(connection, input.arrivals).await,
        }
    }

    /// Checks the sequence numbers of the fresh messages; what remains `Effect` is for the handler.
    ///
    /// A stale delivery is parked in this transaction: its id is in the inbox, and no message waits for it. An early
    /// delivery fails the transaction. A dead letter that is early or stale fails and is parked again.
    async fn check_sequence(
        &self,
        connection: &mut D::Connection,
        input: Input<'_>,
        admissions: &[Admission],
    ) -> TransactionResult {
        let mut outcomes: Vec<Handled> = admissions.iter().map(|admission| outcome_of(*admission)).collect();
        let fresh = indices_of_effects(&outcomes);
        let messages: Vec<&Message> = fresh.iter().map(|index| input.arrivals[*index].message).collect();
        let decisions = self.sequence.decide(&self.inbox, connection, &messages).await?;
        for (index, decision) in fresh.into_iter().zip(decisions) {
            let arrival = input.arrivals[index];
            match (decision, decision.failure(arrival.message)) {
                (_, Some(failure)) if input.dead_letter.is_some() => {
                    let failure = Failure { verdict: Verdict::Park, ..failure };
                    return Err(BatchFailure { index: Some(index), failure }.into());
                }
                (SequenceDecision::Early { .. }, Some(failure)) => {
                    return Err(BatchFailure { index: Some(index), failure }.into());
                }
                (SequenceDecision::Stale { .. }, Some(failure)) => {
                    let parking = Parking { attempts: 1, failure: &failure, hold: Hold::Nothing, again: None };
                    self.dead_letters.write(connection, arrival, parking).await?;
                    let Message { id: message_id, topic, key, .. } = arrival.message;
                    let (key, group) = (key.as_ref().map(|key| key.as_str()), &self.inbox.group);
                    tracing::warn!(
                        %message_id, %topic, key, %group, %failure, "stale message parked; its key continues"
                    );
                    outcomes[index] = Handled::Parked;
                }
                (SequenceDecision::Duplicate, _) => outcomes[index] = Handled::Duplicate,
                _ => {}
            }
        }
        Ok(outcomes)
    }

    async fn call_handler(
        &self,
        connection: &mut D::Connection,
        input: Input<'_>,
        outcomes: &[Handled],
        attempt: Attempt,
        after_commit: &mut AfterCommit,
    ) -> Result<(), BatchFailure> {
        let fresh = indices_of_effects(outcomes);
        if fresh.is_empty() {
            return Ok(());
        }
        if input.dead_letter.is_none() {
            fail::fail_point!("consume.before-handler");
        }
        let messages: Vec<&Message> = fresh.iter().map(|index| input.arrivals[*index].message).collect();
        let GroupInbox { database, group, .. } = &self.inbox;
        let call = HandlerCall { messages: &messages, connection, attempt, database, group, after_commit };
        let called = self.handler.run(call).await;
        called.map_err(|failed| BatchFailure { index: failed.index.map(|index| fresh[index]), ..failed })?;
        if input.dead_letter.is_none() {
            fail::fail_point!("consume.after-handler");
        }
        Ok(())
    }

    /// Marks a dead letter as done.
    async fn complete(&self, connection: &mut D::Connection, input: Input<'_>) -> Result<(), TransactionError> {
        let Some(item) = input.dead_letter else { return Ok(()) };
        let completed = CallDeadline::STATEMENT.run(self.inbox.database.complete_redriven(connection, item)).await;
        // Refused where the handler ignored a database error, which has aborted the transaction.
        refused_by_database(completed)?;
        fail::fail_point!("redrive.before-commit");
        Ok(())
    }

    fn ending(&self, input: Input<'_>, admissions: &[Admission]) -> Ending {
        if input.dead_letter.is_some() {
            return Ending::Commit;
        }
        if admissions.iter().all(|admission| *admission == Admission::Duplicate) {
            return Ending::Flush;
        }
        let has_row = |(arrival, admission): (&Arrival<'_>, &Admission)| {
            *admission == Admission::Fresh && arrival.message.mode.is_deduplicated()
        };
        let has_rows = input.arrivals.iter().zip(admissions).any(has_row);
        if has_rows && self.inbox.idempotence == Idempotence::Inbox { Ending::Commit } else { Ending::CommitSeen }
    }

    /// Rolls back what the handler wrote before it found its effect, and settles the message as a duplicate.
    ///
    /// Its sequence number is recorded all the same: its successor waits for it. A dead letter is marked as done.
    async fn record_already_done(&self, transaction: D::Transaction, input: Input<'_>) -> TransactionResult {
        let database = &self.inbox.database;
        database.flush(transaction).await?;
        if self.sequence.is_enabled() || input.dead_letter.is_some() {
            let mut transaction = database.begin().await?;
            let admissions = self.admit(&mut transaction, input).await?;
            match self.check_sequence(&mut transaction, input, &admissions).await {
                // The first check of this message found that it was next.
                Ok(_) | Err(TransactionError::Failed(_)) => {}
                Err(error) => return Err(error),
            }
            if let Some(item) = input.dead_letter {
                CallDeadline::STATEMENT.run(database.complete_redriven(&mut transaction, item)).await?;
            }
            database.commit(transaction).await?;
        }
        self.sequence.notify_successors(input.arrivals.iter().map(|arrival| arrival.message));
        Ok(vec![Handled::Duplicate; input.arrivals.len()])
    }
}

fn outcome_of(admission: Admission) -> Handled {
    match admission {
        Admission::Fresh => Handled::Effect,
        Admission::Duplicate => Handled::Duplicate,
        Admission::Held => Handled::Held,
    }
}

fn indices_of_effects(outcomes: &[Handled]) -> Vec<usize> {
    (0..outcomes.len()).filter(|index| outcomes[*index] == Handled::Effect).collect()
}

/// Turns a refusal into the message's failure: a constraint that is checked at the commit, or a transaction that the
/// handler broke without reporting it, will never commit. Retrying it as a database error would never end.
fn refused_by_database(result: Result<()>) -> Result<(), TransactionError> {
    match result {
        Err(error) if matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Conflict) => {
            Err(BatchFailure { index: None, failure: Failure::retry(error) }.into())
        }
        result => result.map_err(TransactionError::Database),
    }
}
