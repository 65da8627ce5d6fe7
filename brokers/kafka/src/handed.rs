//! Messages that were handed to librdkafka, until it has told what became of each.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use landfall_core::{Outcome, Position};
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::producer::{DeliveryResult, ProducerContext};
use tokio::sync::Notify;

use crate::client::{ClientErrors, log};
use crate::error::outcome;

/// Outcomes in the order of a batch, as far as they are known.
pub(crate) type Known = Vec<Option<Outcome>>;

/// The outcomes of one batch. `None` for a message that was not handed over, or not answered for yet.
#[derive(Debug)]
pub(crate) struct Handed {
    state: Mutex<State>,
    finished: Notify,
}

#[derive(Debug)]
struct State {
    outcomes: Known,
    /// Those that were handed over, answered for or not.
    handed: Vec<bool>,
    open: usize,
}

impl Handed {
    /// `outcomes` as far as they are known beforehand.
    pub(crate) fn new(outcomes: Known) -> Arc<Self> {
        let state = State { handed: vec![false; outcomes.len()], outcomes, open: 0 };
        Arc::new(Self { state: Mutex::new(state), finished: Notify::new() })
    }

    /// Before message `place` is handed over.
    pub(crate) fn hand(self: &Arc<Self>, place: usize) -> Box<Ticket> {
        let mut state = self.state();
        state.open += 1;
        state.handed[place] = true;
        drop(state);
        Box::new(Ticket { handed: self.clone(), place })
    }

    pub(crate) fn settle(&self, place: usize, outcome: Outcome) {
        let mut state = self.state();
        state.outcomes[place] = Some(outcome);
        state.open -= 1;
        if state.open == 0 {
            self.finished.notify_one();
        }
    }

    /// The outcome of a message that was not handed over.
    pub(crate) fn note(&self, place: usize, outcome: Outcome) {
        self.state().outcomes[place] = Some(outcome);
    }

    pub(crate) fn known(&self) -> Known {
        self.state().outcomes.clone()
    }

    pub(crate) fn has_failures(&self) -> bool {
        self.state().outcomes.iter().flatten().any(|outcome| !outcome.is_accepted())
    }

    /// Whether one that was handed over did not arrive.
    pub(crate) fn has_lost_any(&self) -> bool {
        let state = self.state();
        let each = state.outcomes.iter().zip(&state.handed);
        each.filter(|(_, handed)| **handed).any(|(outcome, _)| !outcome.as_ref().is_some_and(Outcome::is_accepted))
    }

    /// Waits until everything that was handed over is answered for.
    pub(crate) async fn finish(&self) {
        while self.state().open > 0 {
            self.finished.notified().await;
        }
    }

    /// What is known now. Of what was handed over and not answered for, nobody knows; what comes later changes nothing.
    pub(crate) fn take(&self) -> Known {
        let mut state = self.state();
        let State { outcomes, handed, .. } = &mut *state;
        for (outcome, _) in outcomes.iter_mut().zip(handed).filter(|(outcome, handed)| outcome.is_none() && **handed) {
            *outcome = Some(Outcome::Unknown("the cluster did not answer in time".into()));
        }
        let length = outcomes.len();
        std::mem::replace(outcomes, vec![None; length])
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Travels with a message through librdkafka and back.
#[derive(Debug)]
pub(crate) struct Ticket {
    handed: Arc<Handed>,
    place: usize,
}

impl Ticket {
    /// For a message that was refused on the spot.
    pub(crate) fn return_unused(self) {
        let mut state = self.handed.state();
        state.open -= 1;
        state.handed[self.place] = false;
    }
}

/// Told by librdkafka what became of each message.
#[derive(Debug, Default)]
pub(crate) struct Reports(pub(crate) Arc<ClientErrors>);

impl ClientContext for Reports {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.0.record(&error, reason);
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = Box<Ticket>;

    fn delivery(&self, result: &DeliveryResult<'_>, ticket: Box<Ticket>) {
        let outcome = match result {
            // Without acknowledgements, and for a batch that the cluster remembers only as seen, there is no offset.
            Ok(record) => Outcome::Accepted(Position {
                partition: u32::try_from(record.partition()).unwrap_or_default(),
                offset: u64::try_from(record.offset()).unwrap_or_default(),
            }),
            Err((error, _)) => outcome(error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail)),
        };
        ticket.handed.settle(ticket.place, outcome);
    }
}
