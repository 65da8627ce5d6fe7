//! Sequence numbers, for consumers that must apply every message of a key, or only ever newer ones (O3, C4).

mod check;
mod predecessors;

use landfall_core::{Database, ErrorCode, Failure, Message, Result, Sequences, Verdict};

use crate::call_deadline::CallDeadline;
use crate::consume::transaction::GroupInbox;
use check::CheckSequence;
use predecessors::Predecessors;

pub(crate) use check::SequenceDecision;
pub use check::{Early, SequenceCheck};
pub(crate) use predecessors::PredecessorWait;

/// Decides by sequence number whether a message is applied, and wakes messages whose predecessor has been applied.
pub(crate) struct SequenceGuard<D: Database> {
    /// Without one every message is applied.
    check: Option<Box<dyn CheckSequence<D>>>,
    predecessors: Predecessors,
}

impl<D: Database> SequenceGuard<D> {
    /// Applies every message.
    pub(crate) fn disabled() -> Self {
        Self { check: None, predecessors: Predecessors::default() }
    }

    pub(crate) fn new(check: SequenceCheck) -> Self
    where
        D: Sequences,
    {
        Self { check: Some(Box::new(check)), predecessors: Predecessors::default() }
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.check.is_some()
    }

    /// One decision for each of `messages`, as if they were applied in order; records the numbers they reach.
    pub(crate) async fn decide(
        &self,
        inbox: &GroupInbox<D>,
        connection: &mut D::Connection,
        messages: &[&Message],
    ) -> Result<Vec<SequenceDecision>> {
        match &self.check {
            Some(check) if !messages.is_empty() => {
                let decisions = check.decide(&inbox.database, connection, &inbox.group, messages);
                CallDeadline::STATEMENT.run(decisions).await
            }
            _ => Ok(vec![SequenceDecision::Apply; messages.len()]),
        }
    }

    /// What to do with a message that failed because its predecessors are missing; `None` for other failures.
    pub(crate) fn early(&self, failure: &Failure) -> Option<Early> {
        let is_early = failure.code == ErrorCode::OUT_OF_ORDER && failure.verdict == Verdict::Wait;
        self.check.as_deref().filter(|_| is_early)?.early()
    }

    /// Registers `message` as waiting for its predecessor.
    pub(crate) fn wait_for_predecessor<'a>(&'a self, message: &'a Message) -> PredecessorWait<'a> {
        self.predecessors.register(message)
    }

    /// Wakes the successors of messages whose transaction has committed.
    pub(crate) fn notify_successors<'a>(&self, applied: impl Iterator<Item = &'a Message>) {
        if self.is_enabled() {
            applied.for_each(|message| self.predecessors.applied(message));
        }
    }
}
