//! What the tests of faults play: a sender that does as the relay does, consumers with an inbox, and a judge.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use landfall_core::{Broker, GroupName, Key, Message, MessageId, Outcome, Publisher, Subscriber, TopicName};
use landfall_nats::{Nats, Options};
use landfall_testkit::eventually;
use landfall_testkit::history::{History, check};
use tokio::task::JoinHandle;

/// Within this a bounded wait must have seen what it waits for.
pub(crate) const SOON: Duration = Duration::from_secs(30);

const KEYS: usize = 12;
const GROUP: &str = "stock";

pub(crate) fn topic() -> TopicName {
    TopicName::new("orders").unwrap()
}

pub(crate) fn keyed(key: &str, number: i64) -> Message {
    Message::new(topic(), format!("{key}/{number}")).with_key(Key::new(key).unwrap()).with_sequence(number)
}

pub(crate) async fn connect(url: &str) -> Nats {
    Nats::connect(Options::from_url(url).unwrap()).await.unwrap()
}

#[derive(Default)]
pub(crate) struct Scene {
    history: Mutex<History>,
    inbox: Mutex<HashSet<MessageId>>,
    is_over: AtomicBool,
    accepted: AtomicUsize,
    refused: AtomicUsize,
    unknown: AtomicUsize,
    copies: AtomicUsize,
}

impl Scene {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { history: Mutex::new(History::new([GROUP])), ..Self::default() })
    }

    /// Sends new messages of many keys until the scene is over, and then what is left: what was not accepted goes again,
    /// in order, as the relay does it.
    pub(crate) fn send(self: &Arc<Self>, sender: usize, publisher: Arc<dyn Publisher>) -> JoinHandle<()> {
        let scene = self.clone();
        tokio::spawn(async move {
            let mut pending: Vec<Message> = Vec::new();
            for number in 1.. {
                if scene.is_over.load(Ordering::SeqCst) && pending.is_empty() {
                    return;
                }
                if !scene.is_over.load(Ordering::SeqCst) && pending.len() < 2_000 {
                    let keys = (0..KEYS).map(|key| format!("key-{sender}-{key}"));
                    pending.extend(keys.flat_map(|key| (1..=3).map(move |third| keyed(&key, number * 3 + third))));
                }
                let batch: Vec<_> = pending.iter().take(200).cloned().collect();
                let accepted = scene.publish(&*publisher, &batch).await;
                let before = pending.len();
                pending.retain(|message| !accepted.contains(&message.id));
                if pending.len() == before {
                    // A relay leaves a broker alone for a moment that takes nothing.
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        })
    }

    async fn publish(&self, publisher: &dyn Publisher, batch: &[Message]) -> HashSet<MessageId> {
        for message in batch {
            self.history.lock().unwrap().invoke(message.id, message.key.clone(), message.sequence);
        }
        let outcomes = publisher.publish(batch).await;
        assert_eq!(outcomes.len(), batch.len());
        let mut accepted = HashSet::new();
        let mut history = self.history.lock().unwrap();
        for (message, outcome) in batch.iter().zip(outcomes) {
            match outcome {
                Outcome::Accepted(_) => {
                    history.ok(message.id);
                    accepted.insert(message.id);
                    self.accepted.fetch_add(1, Ordering::SeqCst);
                }
                Outcome::Refused(refusal) => {
                    assert!(refusal.retriable, "{refusal:?}");
                    history.failed(message.id);
                    self.refused.fetch_add(1, Ordering::SeqCst);
                }
                Outcome::Unknown(_) => {
                    history.unknown(message.id);
                    self.unknown.fetch_add(1, Ordering::SeqCst);
                }
            }
        }
        accepted
    }

    /// A member of the group that handles one message after the other, each once.
    pub(crate) async fn consume(self: &Arc<Self>, broker: &Nats) -> JoinHandle<()> {
        let subscriber = broker.subscribe(&topic(), &GroupName::new(GROUP).unwrap()).await.unwrap();
        let scene = self.clone();
        tokio::spawn(async move { scene.handle(subscriber).await })
    }

    async fn handle(&self, mut subscriber: Box<dyn Subscriber>) {
        while let Some(delivery) = subscriber.next().await.unwrap() {
            let message = delivery.message.as_ref().unwrap();
            {
                let mut inbox = self.inbox.lock().unwrap();
                match inbox.insert(message.id) {
                    true => self.history.lock().unwrap().effect(GROUP, message.id, message.key.clone()),
                    false => drop(self.copies.fetch_add(1, Ordering::SeqCst)),
                }
            }
            // Its shard may be another member's by now, which handles the copy.
            let _ = delivery.ack().await;
        }
    }

    pub(crate) async fn until_accepted(&self, more: usize) {
        let goal = self.accepted.load(Ordering::SeqCst) + more;
        eventually(SOON, "more messages are accepted", async || self.accepted.load(Ordering::SeqCst) >= goal).await;
    }

    pub(crate) async fn until_handled(&self, more: usize) {
        let goal = self.inbox.lock().unwrap().len() + more;
        eventually(SOON, "more messages are handled", async || self.inbox.lock().unwrap().len() >= goal).await;
    }

    /// Until an attempt came to nothing.
    pub(crate) async fn until_it_fails(&self) {
        let failed = || self.refused.load(Ordering::SeqCst) + self.unknown.load(Ordering::SeqCst);
        let before = failed();
        eventually(SOON, "an attempt is not accepted", async || failed() > before).await;
    }

    pub(crate) fn unknown(&self) -> usize {
        self.unknown.load(Ordering::SeqCst)
    }

    /// Everything is sent and everything that was accepted has its effect, by itself; then the judge looks at it.
    pub(crate) async fn end(&self, senders: Vec<JoinHandle<()>>) {
        self.is_over.store(true, Ordering::SeqCst);
        for sender in senders {
            tokio::time::timeout(SOON, sender).await.expect("everything is sent in time").unwrap();
        }
        let drained = async || check(&self.history.lock().unwrap()).lost.is_empty();
        eventually(SOON, "everything that was accepted takes effect", drained).await;
        let report = check(&self.history.lock().unwrap());
        assert!(report.messages > 100, "{report}");
        report.assert_clean();
    }
}
