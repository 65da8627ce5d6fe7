//! The delivery reports of librdkafka for one batch.

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

/// Collects the outcomes of the messages that were handed to librdkafka, by their index in the batch.
#[derive(Debug, Default)]
pub(crate) struct DeliveryReports {
    state: Mutex<State>,
    complete: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// In the order handed over; `None` until librdkafka reports.
    reports: Vec<(usize, Option<Outcome>)>,
    missing: usize,
}

impl DeliveryReports {
    /// Expects a report for the message at `index`, which is about to be handed over.
    pub(crate) fn expect(self: &Arc<Self>, index: usize) -> Box<Ticket> {
        let mut state = self.state();
        state.missing += 1;
        state.reports.push((index, None));
        let number = state.reports.len() - 1;
        drop(state);
        Box::new(Ticket { reports: self.clone(), number })
    }

    fn report(&self, number: usize, outcome: Outcome) {
        let mut state = self.state();
        // After `take` there is nothing left to report to.
        if let Some((_, report)) = state.reports.get_mut(number) {
            *report = Some(outcome);
            state.missing -= 1;
            if state.missing == 0 {
                self.complete.notify_one();
            }
        }
    }

    /// Whether a message was not accepted, or is not reported yet.
    pub(crate) fn has_failures(&self) -> bool {
        let is_accepted = |report: &Option<Outcome>| report.as_ref().is_some_and(Outcome::is_accepted);
        !self.state().reports.iter().all(|(_, report)| is_accepted(report))
    }

    /// Waits until every message is reported.
    pub(crate) async fn complete(&self) {
        while self.state().missing > 0 {
            self.complete.notified().await;
        }
    }

    /// Returns the outcomes: unknown for messages without a report. Later reports change nothing.
    pub(crate) fn take(&self) -> Vec<(usize, Outcome)> {
        let reports = std::mem::take(&mut *self.state()).reports;
        let unknown = || Outcome::Unknown("the cluster did not answer in time".into());
        reports.into_iter().map(|(index, report)| (index, report.unwrap_or_else(unknown))).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Travels with a message through librdkafka and back.
#[derive(Debug)]
pub(crate) struct Ticket {
    reports: Arc<DeliveryReports>,
    number: usize,
}

impl Ticket {
    /// Expects no report: librdkafka refused the message at once. It must be the last one that was handed over.
    pub(crate) fn return_unused(self) {
        let mut state = self.reports.state();
        debug_assert_eq!(self.number + 1, state.reports.len());
        state.missing -= 1;
        state.reports.pop();
    }
}

/// Receives the delivery reports and errors of a producer.
#[derive(Debug, Default)]
pub(crate) struct ReportContext(pub(crate) Arc<ClientErrors>);

impl ClientContext for ReportContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.0.record(&error, reason);
    }
}

impl ProducerContext for ReportContext {
    type DeliveryOpaque = Box<Ticket>;

    fn delivery(&self, result: &DeliveryResult<'_>, ticket: Box<Ticket>) {
        let outcome = match result {
            // Without acknowledgements, and for a batch that the cluster recognises as a duplicate, there is no offset.
            Ok(record) => Outcome::Accepted(Position {
                partition: u32::try_from(record.partition()).unwrap_or_default(),
                offset: u64::try_from(record.offset()).unwrap_or_default(),
            }),
            Err((error, _)) => outcome(error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail)),
        };
        ticket.reports.report(ticket.number, outcome);
    }
}
