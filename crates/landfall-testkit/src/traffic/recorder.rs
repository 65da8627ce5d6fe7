//! The record that senders and consumers share: sends, outcomes and effects.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use landfall_core::{ErrorCode, Message, MessageId, Outcome};

use super::rule;
use super::sample::stock;
use crate::history::{History, Report, check};

const REFUSED_BUT_STORED: &str = "landfall-violation: a message took effect although every send of it was refused";

#[derive(Debug)]
pub(super) struct Recorder {
    state: Mutex<State>,
    backlog: usize,
}

#[derive(Debug, Default)]
pub(super) struct State {
    history: History,
    /// The inbox of the group: each id takes effect once.
    inbox: HashSet<MessageId>,
    /// Messages of which every send was refused, and which are not being sent: the broker must not have stored them.
    refused: HashSet<MessageId>,
    /// Messages with an unknown outcome of some send: the broker may have stored them, whatever later outcomes say.
    in_doubt: HashSet<MessageId>,
    /// Deliveries of messages that had already taken effect.
    duplicates: usize,
    created: usize,
    pub(super) accepted: usize,
    /// Batches with a message that was not accepted.
    pub(super) failed_batches: usize,
    /// How often each outcome other than accepted was seen since the last progress; `None` stands for unknown.
    pub(super) failures: HashMap<Option<ErrorCode>, usize>,
    last_failure: String,
    senders: usize,
    is_stopping: bool,
    /// The first violation that ends the run.
    pub(super) fatal_error: Option<String>,
}

impl Recorder {
    pub(super) fn new(backlog: usize) -> Self {
        let state = State { history: History::new([stock().as_str()]), ..State::default() };
        Self { state: Mutex::new(state), backlog }
    }

    /// Ignores poisoning: if a task panicked with the lock held, the test has already failed.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn sender_started(&self) {
        self.state().senders += 1;
    }

    pub(super) fn sender_finished(&self) {
        self.state().senders -= 1;
    }

    pub(super) fn stop_creating(&self) {
        self.state().is_stopping = true;
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.state().is_stopping
    }

    pub(super) fn fail(&self, error: String) {
        self.state().fatal_error.get_or_insert(error);
    }

    pub(super) fn clear_failures(&self) {
        self.state().failures.clear();
    }

    /// Whether senders may create new messages: the load runs and the backlog is not full.
    pub(super) fn may_create(&self) -> bool {
        let state = self.state();
        !state.is_stopping && state.accepted < state.handled() + self.backlog
    }

    pub(super) fn record_created(&self, count: usize) {
        self.state().created += count;
    }

    pub(super) fn record_send(&self, batch: &[Message]) {
        let mut state = self.state();
        for message in batch {
            state.refused.remove(&message.id);
            state.history.invoke(message.id, message.key.clone(), message.sequence);
        }
    }

    /// Records the outcomes of a batch. Returns an error if they violate the contract of the port.
    pub(super) fn record_outcomes(&self, batch: &[Message], outcomes: &[Outcome]) -> Result<(), String> {
        rule::check(batch, outcomes)?;
        let mut state = self.state();
        let mut is_all_accepted = true;
        for (message, outcome) in batch.iter().zip(outcomes) {
            let code = match outcome {
                Outcome::Accepted(_) => {
                    state.history.ok(message.id);
                    state.accepted += 1;
                    continue;
                }
                Outcome::Refused(refusal) if !refusal.retriable => {
                    return Err(format!("a message was permanently refused: {refusal:?}"));
                }
                Outcome::Refused(refusal) => {
                    state.history.failed(message.id);
                    state.record_refusal(message.id)?;
                    Some(refusal.code.clone())
                }
                Outcome::Unknown(_) => {
                    state.history.unknown(message.id);
                    state.in_doubt.insert(message.id);
                    None
                }
            };
            if code != Some(ErrorCode::PREDECESSOR) {
                state.last_failure = format!("{outcome:?}");
            }
            *state.failures.entry(code).or_default() += 1;
            is_all_accepted = false;
        }
        state.failed_batches += usize::from(!is_all_accepted);
        Ok(())
    }

    pub(super) fn record_delivery(&self, message: &Message) {
        let mut state = self.state();
        if !state.inbox.insert(message.id) {
            state.duplicates += 1;
            return;
        }
        state.history.effect(stock().as_str(), message.id, message.key.clone());
        if state.refused.contains(&message.id) {
            state.fatal_error.get_or_insert(REFUSED_BUT_STORED.into());
        }
    }

    pub(super) fn check(&self) -> Report {
        check(&self.state().history)
    }
}

impl State {
    pub(super) fn handled(&self) -> usize {
        self.inbox.len()
    }

    fn record_refusal(&mut self, id: MessageId) -> Result<(), String> {
        if self.in_doubt.contains(&id) {
            return Ok(());
        }
        self.refused.insert(id);
        if self.inbox.contains(&id) { Err(REFUSED_BUT_STORED.into()) } else { Ok(()) }
    }

    pub(super) fn is_drained(&self) -> bool {
        self.senders == 0 && self.handled() >= self.created
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} messages created, {} accepted, {} handled", self.created, self.accepted, self.handled())?;
        write!(f, ", {} duplicates, {} batches failed", self.duplicates, self.failed_batches)?;
        for (code, times) in &self.failures {
            let name = code.as_ref().map_or("unknown", ErrorCode::as_str);
            write!(f, ", {name} {times} times")?;
        }
        if !self.last_failure.is_empty() {
            write!(f, ", last failure: {}", self.last_failure)?;
        }
        Ok(())
    }
}
