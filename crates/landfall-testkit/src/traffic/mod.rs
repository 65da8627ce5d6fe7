//! A load of messages from senders through a broker to consumers, for tests that inject faults into the broker.
//!
//! To the broker, a sender behaves like the relay and a consumer like Landfall's consumer:
//!
//! - batches contain several keys, and a key waits behind its first message that was not accepted;
//! - every message is resent until the broker accepts it;
//! - a message takes effect once per id and is acknowledged afterwards.
//!
//! At the end the history checker compares sends with effects.
//!
//! They are not the real relay and consumer. Those are built on the adapters, which this module tests, and they do not
//! expose the broker's outcomes. The command's tests run the whole path over every broker.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! use std::sync::Arc;
//!
//! use landfall_testkit::traffic::Traffic;
//! use landfall_testkit::{Fault, MemoryBroker};
//!
//! let broker = MemoryBroker::new();
//! let traffic = Traffic::start(Arc::new(broker.clone()), [Arc::new(broker.clone()) as _]).await;
//! traffic.wait_for_progress(100).await;
//! broker.fail_next(10, Fault::UnknownAndStored);
//! traffic.wait_for_unknown().await;
//! traffic.wait_for_progress(100).await;
//! traffic.finish().await;
//! # });
//! ```

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod consumer;
mod member;
mod outbox;
mod recorder;
mod rule;
mod sample;
mod sender;

use std::sync::Arc;
use std::time::Duration;

use landfall_core::{Broker, ErrorCode};
use tokio::task::JoinSet;

use crate::history::Report;
use consumer::Consumer;
use outbox::Outbox;
use recorder::{Recorder, State};
use sender::Sender;

pub use member::Member;
pub use rule::assert_keys_wait;
pub use sample::{keyed, orders, stock};

/// The size of the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Keys per sender. No two senders share a key; keys are named `key-0`, `key-1` and so on.
    pub keys: usize,
    /// Messages per published batch.
    pub batch: usize,
    /// How many accepted messages may be unhandled before the senders wait for the consumers.
    pub backlog: usize,
    /// The limit of every wait.
    pub timeout: Duration,
}

impl Default for Plan {
    fn default() -> Self {
        Self { keys: 20, batch: 100, backlog: 2_000, timeout: Duration::from_secs(90) }
    }
}

/// A running load. It runs until [`Traffic::finish`], with [`keyed`] messages on the topic [`orders`] and the group
/// [`stock`].
#[derive(Debug)]
pub struct Traffic {
    plan: Plan,
    recorder: Arc<Recorder>,
    senders: JoinSet<()>,
    members: JoinSet<()>,
    key_ranges: usize,
}

impl Traffic {
    /// Starts one consumer on each of `receiving` and then one sender, with the default plan.
    pub async fn start(sending: Arc<dyn Broker>, receiving: impl IntoIterator<Item = Arc<dyn Broker>>) -> Self {
        Self::start_with(Plan::default(), sending, receiving).await
    }

    /// As [`Traffic::start`], with the given plan.
    pub async fn start_with(
        plan: Plan,
        sending: Arc<dyn Broker>,
        receiving: impl IntoIterator<Item = Arc<dyn Broker>>,
    ) -> Self {
        let mut traffic = Self::new(plan);
        for broker in receiving {
            traffic.add_consumer(&*broker).await;
        }
        traffic.add_sender(&*sending);
        traffic
    }

    /// A load without senders and consumers.
    pub fn new(plan: Plan) -> Self {
        let recorder = Arc::new(Recorder::new(plan.backlog));
        Self { plan, recorder, senders: JoinSet::new(), members: JoinSet::new(), key_ranges: 0 }
    }

    /// Adds a sender with keys of its own.
    pub fn add_sender(&mut self, broker: &dyn Broker) {
        let first = self.key_ranges * self.plan.keys;
        self.key_ranges += 1;
        let outbox = Outbox::new(first..first + self.plan.keys);
        let sender = Sender::new(broker.publisher(), self.recorder.clone(), outbox, self.plan.batch);
        self.recorder.sender_started();
        self.senders.spawn(sender.run());
    }

    /// Adds a consumer. It runs to the end unless the returned [`Member`] leaves or is killed.
    pub async fn add_consumer(&mut self, broker: &dyn Broker) -> Member {
        let mut subscriber = None;
        crate::eventually(self.plan.timeout, "a consumer joins its group", async || {
            match broker.subscribe(&orders(), &stock()).await {
                Ok(joined) => subscriber = Some(joined),
                Err(error) => assert!(error.is_temporary(), "the consumer failed to join its group: {error}"),
            }
            subscriber.is_some()
        })
        .await;
        let consumer = Consumer::new(subscriber.unwrap(), self.recorder.clone());
        let leave = consumer.leave_signal();
        Member::new(leave, self.members.spawn(consumer.run()))
    }

    /// Waits until the broker has accepted `more` messages than now.
    pub async fn wait_for_accepted(&self, more: usize) {
        let goal = self.recorder.state().accepted + more;
        self.until("more messages are accepted", |state| state.accepted >= goal).await;
        self.recorder.clear_failures();
    }

    /// Waits until `more` messages than now have taken effect.
    pub async fn wait_for_handled(&self, more: usize) {
        let goal = self.recorder.state().handled() + more;
        self.until("more messages take effect", |state| state.handled() >= goal).await;
        self.recorder.clear_failures();
    }

    /// Waits until `more` messages were accepted and `more` have taken effect.
    pub async fn wait_for_progress(&self, more: usize) {
        self.wait_for_accepted(more).await;
        self.wait_for_handled(more).await;
    }

    /// Waits for a message that was refused with `code` since the last progress.
    pub async fn wait_for_refusal(&self, code: ErrorCode) {
        let what = format!("a message is refused with {code}");
        self.until(&what, |state| state.failures.contains_key(&Some(code.clone()))).await;
    }

    /// Waits for a message with an unknown outcome since the last progress.
    pub async fn wait_for_unknown(&self) {
        self.until("a message has an unknown outcome", |state| state.failures.contains_key(&None)).await;
    }

    /// Waits until `more` batches than now had a message that was not accepted.
    pub async fn wait_for_failed_batches(&self, more: usize) {
        let goal = self.recorder.state().failed_batches + more;
        self.until("batches fail", |state| state.failed_batches >= goal).await;
    }

    /// Returns how many messages have taken effect.
    pub fn handled(&self) -> usize {
        self.recorder.state().handled()
    }

    /// Stops creating messages, waits until the rest has taken effect, and checks the history.
    ///
    /// # Panics
    ///
    /// If messages were lost, doubled, invented or reordered, or if the rest does not drain in time. The panic message
    /// contains the report.
    pub async fn finish(self) {
        self.drain().await.assert_clean();
    }

    /// As [`Traffic::finish`], but returns the report unchecked: for a server that may lose messages.
    pub async fn drain(self) -> Report {
        self.recorder.stop_creating();
        let is_drained = self.reaches(State::is_drained).await;
        let report = self.recorder.check();
        if !is_drained {
            // Lost messages are then the cause, and the missing drain the consequence: report them first.
            report.assert_clean();
            panic!("the traffic did not drain: {}", self.recorder.state());
        }
        assert!(report.effects > 0, "no message took effect");
        report
    }

    async fn until(&self, what: &str, condition: impl Fn(&State) -> bool) {
        let is_reached = self.reaches(condition).await;
        let timeout = self.plan.timeout;
        assert!(is_reached, "timed out after {timeout:?} waiting until {what}; {}", self.recorder.state());
    }

    async fn reaches(&self, condition: impl Fn(&State) -> bool) -> bool {
        let waiting = async {
            loop {
                {
                    let state = self.recorder.state();
                    if let Some(error) = &state.fatal_error {
                        panic!("{error}; {state}");
                    }
                    if condition(&state) {
                        return;
                    }
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(self.plan.timeout, waiting).await.is_ok()
    }
}
