//! Messages on their way from senders over a broker to consumers, for as long as a test makes trouble for the broker,
//! and a judge at the end.
//!
//! A sender does what the relay does and a consumer what the consumer does, as far as a broker can tell: batches of
//! several keys, a key that waits behind its first message that was not accepted, everything sent until it is accepted,
//! each effect once per id and acknowledged afterwards. They are not the relay and the consumer themselves: those stand
//! on top of the adapters, whose tests this is for, and tell nobody what the broker answered. The whole path runs over
//! every broker in the tests of the command.
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
//! traffic.flows(100).await;
//! broker.fail_next(10, Fault::UnknownAndStored);
//! traffic.unknown().await;
//! traffic.flows(100).await;
//! traffic.finish().await;
//! # });
//! ```

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod account;
mod consumer;
mod member;
mod outbox;
mod rule;
mod sample;
mod sender;

use std::sync::Arc;
use std::time::Duration;

use landfall_core::{Broker, ErrorCode};
use tokio::task::JoinSet;

use crate::history::Report;
use account::{Account, State};
use consumer::Consumer;
use outbox::Outbox;
use sender::Sender;

pub use member::Member;
pub use rule::assert_keys_wait;
pub use sample::{keyed, orders, stock};

/// How much there is on the way at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Of each sender, which has keys of its own: `key-0`, `key-1` and so on.
    pub keys: usize,
    /// What a sender hands over at a time.
    pub batch: usize,
    /// So many may be accepted and not handled yet. With more, senders wait for the consumers.
    pub backlog: usize,
    /// Within this everything that is waited for must have come about.
    pub patience: Duration,
}

impl Default for Plan {
    fn default() -> Self {
        Self { keys: 20, batch: 100, backlog: 2_000, patience: Duration::from_secs(90) }
    }
}

/// Runs until [`Traffic::finish`]. Messages are [`keyed`] ones of the topic [`orders`], and the group is [`stock`].
#[derive(Debug)]
pub struct Traffic {
    plan: Plan,
    account: Arc<Account>,
    senders: JoinSet<()>,
    members: JoinSet<()>,
    key_ranges: usize,
}

impl Traffic {
    /// The usual: one sender, and a consumer on each of `receiving`, which are there before it.
    pub async fn start(sending: Arc<dyn Broker>, receiving: impl IntoIterator<Item = Arc<dyn Broker>>) -> Self {
        Self::start_with(Plan::default(), sending, receiving).await
    }

    /// The same with a plan of its own.
    pub async fn start_with(
        plan: Plan,
        sending: Arc<dyn Broker>,
        receiving: impl IntoIterator<Item = Arc<dyn Broker>>,
    ) -> Self {
        let mut traffic = Self::new(plan);
        for broker in receiving {
            traffic.join(&*broker).await;
        }
        traffic.send(&*sending);
        traffic
    }

    /// Nobody sends and nobody consumes yet.
    pub fn new(plan: Plan) -> Self {
        let account = Arc::new(Account::new(plan.backlog));
        Self { plan, account, senders: JoinSet::new(), members: JoinSet::new(), key_ranges: 0 }
    }

    /// One more sender, with keys of its own.
    pub fn send(&mut self, broker: &dyn Broker) {
        let first = self.key_ranges * self.plan.keys;
        self.key_ranges += 1;
        let outbox = Outbox::new(first..first + self.plan.keys);
        let sender = Sender::new(broker.publisher(), self.account.clone(), outbox, self.plan.batch);
        self.account.begins();
        self.senders.spawn(sender.run());
    }

    /// One more consumer. It stays to the end unless it is told otherwise.
    pub async fn join(&mut self, broker: &dyn Broker) -> Member {
        let mut subscriber = None;
        crate::eventually(self.plan.patience, "a consumer is let into its group", async || {
            match broker.subscribe(&orders(), &stock()).await {
                Ok(joined) => subscriber = Some(joined),
                Err(error) => assert!(error.is_temporary(), "a consumer cannot join: {error}"),
            }
            subscriber.is_some()
        })
        .await;
        let consumer = Consumer::new(subscriber.unwrap(), self.account.clone());
        let told = consumer.told();
        Member::new(told, self.members.spawn(consumer.run()))
    }

    /// Waits until `more` messages were accepted than now.
    pub async fn accepts(&self, more: usize) {
        let goal = self.account.state().accepted + more;
        self.until("more messages are accepted", |state| state.accepted >= goal).await;
        self.account.forgets_troubles();
    }

    /// Waits until `more` messages took effect than now.
    pub async fn handles(&self, more: usize) {
        let goal = self.account.state().handled() + more;
        self.until("more messages take effect", |state| state.handled() >= goal).await;
        self.account.forgets_troubles();
    }

    /// Waits until `more` messages were accepted and as many took effect.
    pub async fn flows(&self, more: usize) {
        self.accepts(more).await;
        self.handles(more).await;
    }

    /// Waits until a message was refused with `code`, since messages last flowed.
    pub async fn suffers(&self, code: ErrorCode) {
        let what = format!("a message is refused with {code}");
        self.until(&what, |state| state.troubles.contains_key(&Some(code.clone()))).await;
    }

    /// Waits until nobody knew what became of a message, since messages last flowed.
    pub async fn unknown(&self) {
        self.until("nobody knows what became of a message", |state| state.troubles.contains_key(&None)).await;
    }

    /// Waits until `more` batches than now were not accepted as a whole.
    pub async fn fails(&self, more: usize) {
        let goal = self.account.state().failed_batches + more;
        self.until("batches are not accepted", |state| state.failed_batches >= goal).await;
    }

    /// How many messages took effect so far.
    pub fn handled(&self) -> usize {
        self.account.state().handled()
    }

    /// No more new messages: what is left is sent and takes effect by itself, and nothing was lost, doubled, made up or
    /// put out of order.
    ///
    /// # Panics
    ///
    /// With the whole account, unless it is so.
    pub async fn finish(self) {
        self.drain().await.assert_clean();
    }

    /// As [`Traffic::finish`], and leaves the judgement to the caller: for a server that does not keep everything.
    pub async fn drain(self) -> Report {
        self.account.is_enough();
        let is_drained = self.comes_to(State::is_drained).await;
        let report = self.account.judge();
        if !is_drained {
            // What was lost is the reason then, and the rest only a consequence.
            report.assert_clean();
            panic!("it does not drain by itself: {}", self.account.state());
        }
        assert!(report.effects > 0, "nothing was on its way");
        report
    }

    async fn until(&self, what: &str, condition: impl Fn(&State) -> bool) {
        let came = self.comes_to(condition).await;
        assert!(came, "waited {:?} in vain: {what}; {}", self.plan.patience, self.account.state());
    }

    async fn comes_to(&self, condition: impl Fn(&State) -> bool) -> bool {
        let waiting = async {
            loop {
                {
                    let state = self.account.state();
                    if let Some(why) = &state.broken {
                        panic!("{why}; {state}");
                    }
                    if condition(&state) {
                        return;
                    }
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(self.plan.patience, waiting).await.is_ok()
    }
}
