//! What senders and consumers know together: what became of every message.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use landfall_core::{ErrorCode, Message, MessageId, Outcome};

use super::rule;
use super::sample::stock;
use crate::history::{History, Report, check};

const REFUSED_AND_STORED: &str = "a message took effect that was refused whenever it was sent";

#[derive(Debug)]
pub(super) struct Account {
    state: Mutex<State>,
    backlog: usize,
}

#[derive(Debug, Default)]
pub(super) struct State {
    history: History,
    /// The inbox that all consumers share: each id takes effect once.
    inbox: HashSet<MessageId>,
    /// What was refused whenever it was sent, and is not being sent: it is nowhere, if that was true.
    refused: HashSet<MessageId>,
    /// What may be in the broker whatever was said later: of one send of it nobody knew what became of it.
    in_doubt: HashSet<MessageId>,
    /// Deliveries of what had taken effect before.
    copies: usize,
    made: usize,
    pub(super) accepted: usize,
    /// Batches of which something was not accepted.
    pub(super) failed_batches: usize,
    /// How often each outcome other than accepted was seen since messages last flowed; `None` is unknown.
    pub(super) troubles: HashMap<Option<ErrorCode>, usize>,
    last_trouble: String,
    senders: usize,
    is_enough: bool,
    /// Why none of this can go on.
    pub(super) broken: Option<String>,
}

impl Account {
    pub(super) fn new(backlog: usize) -> Self {
        let state = State { history: History::new([stock().as_str()]), ..State::default() };
        Self { state: Mutex::new(state), backlog }
    }

    /// A test that panicked while it held the lock has failed already.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begins(&self) {
        self.state().senders += 1;
    }

    pub(super) fn ends(&self) {
        self.state().senders -= 1;
    }

    pub(super) fn is_enough(&self) {
        self.state().is_enough = true;
    }

    pub(super) fn is_over(&self) -> bool {
        self.state().is_enough
    }

    pub(super) fn breaks(&self, why: String) {
        self.state().broken.get_or_insert(why);
    }

    pub(super) fn forgets_troubles(&self) {
        self.state().troubles.clear();
    }

    /// Whether there is room for new messages.
    pub(super) fn wants_more(&self) -> bool {
        let state = self.state();
        !state.is_enough && state.accepted < state.handled() + self.backlog
    }

    pub(super) fn makes(&self, count: usize) {
        self.state().made += count;
    }

    pub(super) fn sends(&self, batch: &[Message]) {
        let mut state = self.state();
        for message in batch {
            state.refused.remove(&message.id);
            state.history.invoke(message.id, message.key.clone(), message.sequence);
        }
    }

    /// What the broker said about a batch. `Err` if it may not say that.
    pub(super) fn learns(&self, batch: &[Message], outcomes: &[Outcome]) -> Result<(), String> {
        rule::check(batch, outcomes)?;
        let mut state = self.state();
        let mut is_whole = true;
        for (message, outcome) in batch.iter().zip(outcomes) {
            let code = match outcome {
                Outcome::Accepted(_) => {
                    state.history.ok(message.id);
                    state.accepted += 1;
                    continue;
                }
                Outcome::Refused(refusal) if !refusal.retriable => {
                    return Err(format!("a message was refused for good: {refusal:?}"));
                }
                Outcome::Refused(refusal) => {
                    state.history.failed(message.id);
                    state.is_refused(message.id)?;
                    Some(refusal.code.clone())
                }
                Outcome::Unknown(_) => {
                    state.history.unknown(message.id);
                    state.in_doubt.insert(message.id);
                    None
                }
            };
            if code != Some(ErrorCode::PREDECESSOR) {
                state.last_trouble = format!("{outcome:?}");
            }
            *state.troubles.entry(code).or_default() += 1;
            is_whole = false;
        }
        state.failed_batches += usize::from(!is_whole);
        Ok(())
    }

    pub(super) fn handles(&self, message: &Message) {
        let mut state = self.state();
        if !state.inbox.insert(message.id) {
            state.copies += 1;
            return;
        }
        state.history.effect(stock().as_str(), message.id, message.key.clone());
        if state.refused.contains(&message.id) {
            state.broken.get_or_insert(REFUSED_AND_STORED.into());
        }
    }

    pub(super) fn judge(&self) -> Report {
        check(&self.state().history)
    }
}

impl State {
    pub(super) fn handled(&self) -> usize {
        self.inbox.len()
    }

    fn is_refused(&mut self, id: MessageId) -> Result<(), String> {
        if self.in_doubt.contains(&id) {
            return Ok(());
        }
        self.refused.insert(id);
        if self.inbox.contains(&id) { Err(REFUSED_AND_STORED.into()) } else { Ok(()) }
    }

    pub(super) fn is_drained(&self) -> bool {
        self.senders == 0 && self.handled() >= self.made
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} messages made, {} accepted, {} handled", self.made, self.accepted, self.handled())?;
        write!(f, ", {} copies, {} batches failed", self.copies, self.failed_batches)?;
        for (code, times) in &self.troubles {
            let name = code.as_ref().map_or("unknown", ErrorCode::as_str);
            write!(f, ", {name} {times} times")?;
        }
        if !self.last_trouble.is_empty() {
            write!(f, ", the last: {}", self.last_trouble)?;
        }
        Ok(())
    }
}
