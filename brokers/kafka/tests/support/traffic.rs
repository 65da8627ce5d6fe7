//! A relay and a consumer in small: what one sends until it is accepted, in order, and the other applies once.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use landfall_core::{Broker, ErrorCode, GroupName, Key, Message, Outcome, Publisher, TopicName};
use landfall_kafka::Kafka;
use landfall_testkit::eventually;
use landfall_testkit::history::{History, check};
use tokio::task::JoinHandle;

const KEYS: usize = 20;
const GROUP: &str = "stock";
/// What a relay hands over at a time.
const BATCH: usize = 100;

/// Runs until [`Traffic::finish`].
pub(crate) struct Traffic {
    history: Arc<Mutex<History>>,
    enough: Arc<AtomicBool>,
    pub(crate) accepted: Arc<AtomicUsize>,
    pub(crate) applied: Arc<AtomicUsize>,
    /// How often each outcome other than accepted was seen; `None` is unknown.
    pub(crate) trouble: Arc<Mutex<HashMap<Option<ErrorCode>, usize>>>,
    relay: JoinHandle<usize>,
    consumer: JoinHandle<()>,
}

pub(crate) fn orders() -> TopicName {
    TopicName::new("orders").unwrap()
}

pub(crate) fn numbered(key: &str, number: i64) -> Message {
    let payload = format!("{key}/{number}");
    Message::new(orders(), payload).with_key(Key::new(key).unwrap()).with_sequence(number)
}

impl Traffic {
    /// One relay and one consumer, each with a broker of its own.
    pub(crate) async fn start(relay: Kafka, consumer: Kafka) -> Self {
        let history = Arc::new(Mutex::new(History::new([GROUP])));
        let (enough, trouble) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(HashMap::new())));
        let (accepted, applied) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let group = GroupName::new(GROUP).unwrap();
        let mut subscriber = consumer.subscribe(&orders(), &group).await.unwrap();
        let consumer = tokio::spawn({
            let (history, applied) = (history.clone(), applied.clone());
            async move {
                let mut inbox = HashSet::new();
                while let Some(delivery) = subscriber.next().await.unwrap() {
                    let (message, _, acknowledge) = delivery.into_parts();
                    let message = message.unwrap();
                    if inbox.insert(message.id) {
                        history.lock().unwrap().effect(GROUP, message.id, message.key);
                        applied.fetch_add(1, Ordering::SeqCst);
                    }
                    acknowledge.ack().await.unwrap();
                }
            }
        });
        let relaying = Relay {
            publisher: relay.publisher(),
            history: history.clone(),
            accepted: accepted.clone(),
            trouble: trouble.clone(),
        };
        let relay = tokio::spawn(relaying.run(enough.clone()));
        Self { history, enough, accepted, applied, trouble, relay, consumer }
    }

    /// Waits until that many more were accepted.
    pub(crate) async fn flows(&self, more: usize) {
        let target = self.accepted.load(Ordering::SeqCst) + more;
        let flows = async || self.accepted.load(Ordering::SeqCst) >= target;
        eventually(Duration::from_secs(60), "messages are accepted", flows).await;
    }

    /// Waits until an outcome of this kind was seen.
    pub(crate) async fn suffers(&self, code: Option<ErrorCode>) {
        let seen = async || self.trouble.lock().unwrap().contains_key(&code);
        eventually(Duration::from_secs(60), &format!("an outcome {code:?}"), seen).await;
    }

    /// No more new messages: everything is sent and applied by itself, and nothing was lost, doubled or reordered.
    pub(crate) async fn finish(self) {
        self.enough.store(true, Ordering::SeqCst);
        let sent = tokio::time::timeout(Duration::from_secs(60), self.relay).await.expect("it drains").unwrap();
        let applied = async || self.applied.load(Ordering::SeqCst) == sent;
        eventually(Duration::from_secs(60), "everything is applied", applied).await;
        self.consumer.abort();
        let report = check(&self.history.lock().unwrap());
        report.assert_clean();
        assert_eq!(report.effects, sent);
    }
}

struct Relay {
    publisher: Arc<dyn Publisher>,
    history: Arc<Mutex<History>>,
    accepted: Arc<AtomicUsize>,
    trouble: Arc<Mutex<HashMap<Option<ErrorCode>, usize>>>,
}

impl Relay {
    /// Sends until it is enough and everything was accepted. Answers with how many that were.
    async fn run(self, enough: Arc<AtomicBool>) -> usize {
        let (mut pending, mut made) = (VecDeque::new(), 0);
        loop {
            while !enough.load(Ordering::SeqCst) && pending.len() < BATCH {
                let message = numbered(&format!("key-{}", made % KEYS), (made / KEYS) as i64);
                self.history.lock().unwrap().invoke(message.id, message.key.clone(), message.sequence);
                pending.push_back(message);
                made += 1;
            }
            if pending.is_empty() {
                return made;
            }
            let batch: Vec<Message> = pending.iter().take(BATCH).cloned().collect();
            let outcomes = self.publisher.publish(&batch).await;
            assert_rule(&batch, &outcomes);
            let mut kept = self.settle(batch, outcomes);
            kept.extend(pending.drain(..).skip(BATCH));
            pending = kept;
            // As a relay backs off, only shorter.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// What was not accepted, in its order.
    fn settle(&self, batch: Vec<Message>, outcomes: Vec<Outcome>) -> VecDeque<Message> {
        let mut kept = VecDeque::new();
        for (message, outcome) in batch.into_iter().zip(outcomes) {
            let code = match outcome {
                Outcome::Accepted(_) => {
                    self.history.lock().unwrap().ok(message.id);
                    self.accepted.fetch_add(1, Ordering::SeqCst);
                    continue;
                }
                Outcome::Refused(refusal) => Some(refusal.code),
                Outcome::Unknown(_) => None,
            };
            *self.trouble.lock().unwrap().entry(code).or_default() += 1;
            kept.push_back(message);
        }
        kept
    }
}

/// After one that was not accepted, no later one of the same key is.
pub(crate) fn assert_rule(batch: &[Message], outcomes: &[Outcome]) {
    assert_eq!(batch.len(), outcomes.len());
    let mut stopped = HashSet::new();
    for (message, outcome) in batch.iter().zip(outcomes) {
        let key = (&message.topic, &message.key);
        if !outcome.is_accepted() && message.key.is_some() {
            stopped.insert(key);
        } else {
            assert!(
                !stopped.contains(&key),
                "number {:?} of {:?} overtook one before it",
                message.sequence,
                message.key
            );
        }
    }
}
