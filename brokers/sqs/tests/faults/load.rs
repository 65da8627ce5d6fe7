//! A relay and a consumer as Landfall's are, and the judge of what they did.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use landfall_core::{Broker, GroupName, Key, Message, MessageId, Outcome, Publisher, TopicName};
use landfall_sqs::{Options, Sqs};
use landfall_testkit::history::{History, Report, check};
use landfall_testkit::servers::{ElasticMq, InUse, Restartable};
use landfall_testkit::{current_test, eventually};
use tokio::task::JoinSet;

pub(crate) const GROUP: &str = "stock";
/// Within this everything that heals must have healed.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// A server for those who do not harm it; `None` where there is none.
pub(crate) async fn server() -> Option<InUse<ElasticMq>> {
    static SERVER: Restartable<ElasticMq> = Restartable::new();
    SERVER.use_with(async || ElasticMq::start(&current_test()).await).await
}

/// FIFO queues at `endpoint` with names of their own, and with as little patience as a test has.
pub(crate) async fn connect(endpoint: &str) -> Sqs {
    connect_with(endpoint, "timeout=2s&visibility=4s&wait=2s").await
}

pub(crate) async fn connect_with(endpoint: &str, parameters: &str) -> Sqs {
    let url = format!("sqs://key:secret@test?endpoint={endpoint}&prefix={}-&{parameters}", MessageId::new());
    Sqs::connect(Options::from_url(&url).unwrap()).await.unwrap()
}

pub(crate) fn topic() -> TopicName {
    TopicName::new("orders").unwrap()
}

pub(crate) fn group() -> GroupName {
    GroupName::new(GROUP).unwrap()
}

pub(crate) fn keyed(key: &str, sequence: i64) -> Message {
    Message::new(topic(), format!("{key}/{sequence}")).with_key(Key::new(key).unwrap()).with_sequence(sequence)
}

/// The numbers `1..=count` of each of `keys` keys, in turn.
pub(crate) fn messages(keys: usize, count: i64) -> Vec<Message> {
    (1..=count).flat_map(|number| (0..keys).map(move |key| keyed(&format!("key-{key}"), number))).collect()
}

/// What happened so far.
#[derive(Clone, Default)]
pub(crate) struct Account(Arc<Mutex<State>>);

struct State {
    history: History,
    seen: HashSet<MessageId>,
    unknown: usize,
}

impl Default for State {
    fn default() -> Self {
        Self { history: History::new([GROUP]), seen: HashSet::new(), unknown: 0 }
    }
}

impl Account {
    pub(crate) fn effects(&self) -> usize {
        self.0.lock().unwrap().seen.len()
    }

    /// Sends of which nobody knew what became of them.
    pub(crate) fn unknown(&self) -> usize {
        self.0.lock().unwrap().unknown
    }

    pub(crate) fn report(&self) -> Report {
        check(&self.0.lock().unwrap().history)
    }

    /// Publishes as a relay does: in order, at most fifty at a time, and what was not accepted again.
    pub(crate) async fn relay(self, publisher: Arc<dyn Publisher>, mut waiting: Vec<Message>) {
        while !waiting.is_empty() {
            let batch = &waiting[..waiting.len().min(50)];
            for message in batch {
                self.0.lock().unwrap().history.invoke(message.id, message.key.clone(), message.sequence);
            }
            let outcomes = publisher.publish(batch).await;
            assert_eq!(outcomes.len(), batch.len());
            let mut accepted = HashSet::new();
            for (message, outcome) in batch.iter().zip(outcomes) {
                let mut state = self.0.lock().unwrap();
                match outcome {
                    Outcome::Accepted(_) => {
                        state.history.ok(message.id);
                        accepted.insert(message.id);
                    }
                    Outcome::Refused(refusal) => {
                        assert!(refusal.retriable, "{refusal:?}");
                        state.history.failed(message.id);
                    }
                    Outcome::Unknown(_) => {
                        state.history.unknown(message.id);
                        state.unknown += 1;
                    }
                }
            }
            if accepted.is_empty() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            waiting.retain(|message| !accepted.contains(&message.id));
        }
    }

    /// Applies every message once, as a consumer with an inbox does, and acknowledges it.
    pub(crate) async fn consume(self, sqs: Sqs) {
        let mut subscriber = sqs.subscribe(&topic(), &group()).await.unwrap();
        loop {
            let delivery = subscriber.next().await.unwrap().expect("the broker is not closed");
            let message = delivery.message.as_ref().unwrap();
            {
                let mut state = self.0.lock().unwrap();
                if state.seen.insert(message.id) {
                    state.history.effect(GROUP, message.id, message.key.clone());
                }
            }
            delivery.ack().await.unwrap();
        }
    }
}

/// A relay and a consumer at work on `count` messages of each of ten keys.
pub(crate) struct Load {
    pub(crate) account: Account,
    pub(crate) total: usize,
    tasks: JoinSet<()>,
}

impl Load {
    pub(crate) async fn start(sqs: &Sqs, count: i64) -> Self {
        // The queue is there before anything goes wrong.
        sqs.subscribe(&topic(), &group()).await.unwrap().close().await.unwrap();
        let (account, messages) = (Account::default(), messages(10, count));
        let (total, mut tasks) = (messages.len(), JoinSet::new());
        tasks.spawn(account.clone().relay(sqs.publisher(), messages));
        tasks.spawn(account.clone().consume(sqs.clone()));
        Self { account, total, tasks }
    }

    pub(crate) async fn until(&self, effects: usize) {
        eventually(SOON, "so many effects", async || self.account.effects() >= effects).await;
    }

    /// Waits until everything has taken effect, and answers with the judgement.
    pub(crate) async fn drained(mut self) -> Report {
        self.until(self.total).await;
        self.tasks.abort_all();
        while let Some(ended) = self.tasks.join_next().await {
            assert!(!ended.is_err_and(|error| error.is_panic()), "the relay or the consumer failed");
        }
        let report = self.account.report();
        assert_eq!((report.messages, report.effects), (self.total, self.total), "{report}");
        report
    }
}
