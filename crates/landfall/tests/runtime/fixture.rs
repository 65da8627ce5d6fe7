//! One database, the in-memory broker, and consumers between them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use landfall::consume::{BatchHandler, Consumer, DedupCache, Handler, Options, SequenceCheck};
use landfall::{
    Backoff, Broker, DeadLetter, DeadLetterFilter, DeadLetterStatus, GroupName, Key, Kind, Message, TopicName,
};
use landfall_testkit::{MemoryBroker, eventually};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::database::{Effect, TestDatabase};

pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// Few and short retries, so that a test sees every stage of a failure.
pub(crate) const QUICK: Backoff =
    Backoff { first: Duration::from_millis(2), cap: Duration::from_millis(10), max_attempts: 3 };

pub(crate) fn options() -> Options {
    Options { backoff: QUICK, redrive_poll: Duration::from_millis(10), ..Options::default() }
}

pub(crate) fn topic() -> TopicName {
    TopicName::new("orders").unwrap()
}

pub(crate) fn group() -> GroupName {
    GroupName::new("stock").unwrap()
}

/// The kind of a message tells the handler what to do with it.
pub(crate) fn message(key: &str, sequence: i64, kind: &str) -> Message {
    let message = Message::new(topic(), format!("{key}/{sequence}")).with_kind(Kind::new(kind).unwrap());
    message.with_key(Key::new(key).unwrap()).with_sequence(sequence)
}

pub(crate) struct Fixture<D> {
    pub(crate) database: D,
    pub(crate) broker: Arc<MemoryBroker>,
}

/// A running consumer.
pub(crate) struct Running {
    stop: CancellationToken,
    task: JoinHandle<landfall::Result<()>>,
}

impl Running {
    /// Stops it gracefully.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }
}

impl<D: TestDatabase> Fixture<D> {
    pub(crate) async fn new() -> Option<Self> {
        Some(Self { database: D::fresh().await?, broker: Arc::new(MemoryBroker::new()) })
    }

    pub(crate) async fn publish(&self, messages: &[Message]) {
        let outcomes = self.broker.publisher().publish(messages).await;
        assert!(outcomes.iter().all(landfall::Outcome::is_accepted), "{outcomes:?}");
    }

    pub(crate) fn consumer(&self, options: Options, handler: impl Handler<D>) -> Running {
        let (database, broker) = (self.database.clone(), self.broker.clone());
        let consumer = Consumer::builder(database, broker)
            .topic(topic())
            .group(group())
            .handler(handler)
            .options(options)
            .build()
            .unwrap();
        let stop = CancellationToken::new();
        Running { task: tokio::spawn(consumer.run(stop.clone())), stop }
    }

    /// Answers rehearsals, and checks that sequence numbers follow each other.
    pub(crate) fn consumer_with_rehearsals(&self, handler: impl Handler<D>) -> Running {
        let (database, broker) = (self.database.clone(), self.broker.clone());
        let consumer = Consumer::builder(database, broker)
            .topic(topic())
            .group(group())
            .handler(handler)
            .options(options())
            .sequence_check(SequenceCheck::Newest)
            .rehearsals()
            .build()
            .unwrap();
        let stop = CancellationToken::new();
        Running { task: tokio::spawn(consumer.run(stop.clone())), stop }
    }

    pub(crate) fn consumer_in_sequence(
        &self,
        options: Options,
        check: SequenceCheck,
        handler: impl Handler<D>,
    ) -> Running {
        let (database, broker) = (self.database.clone(), self.broker.clone());
        let consumer = Consumer::builder(database, broker)
            .topic(topic())
            .group(group())
            .handler(handler)
            .options(options)
            .sequence_check(check)
            .build()
            .unwrap();
        let stop = CancellationToken::new();
        Running { task: tokio::spawn(consumer.run(stop.clone())), stop }
    }

    pub(crate) fn consumer_behind(
        &self,
        options: Options,
        cache: impl DedupCache,
        handler: impl Handler<D>,
    ) -> Running {
        let (database, broker) = (self.database.clone(), self.broker.clone());
        let consumer = Consumer::builder(database, broker)
            .topic(topic())
            .group(group())
            .handler(handler)
            .options(options)
            .dedup_cache(cache)
            .build()
            .unwrap();
        let stop = CancellationToken::new();
        Running { task: tokio::spawn(consumer.run(stop.clone())), stop }
    }

    pub(crate) fn consumer_of_batches(&self, options: Options, handler: impl BatchHandler<D>) -> Running {
        let (database, broker) = (self.database.clone(), self.broker.clone());
        let consumer = Consumer::builder(database, broker)
            .topic(topic())
            .group(group())
            .batch_handler(handler)
            .options(options)
            .build()
            .unwrap();
        let stop = CancellationToken::new();
        Running { task: tokio::spawn(consumer.run(stop.clone())), stop }
    }

    pub(crate) async fn effects_become(&self, count: usize) {
        eventually(TIMEOUT, "the effects", async || self.database.effects().await.len() >= count).await;
    }

    pub(crate) async fn letters(&self) -> Vec<DeadLetter> {
        self.database.find(&DeadLetterFilter::default(), 100_000).await.unwrap()
    }

    /// Waits until this many messages have an effect or a dead letter.
    pub(crate) async fn settle(&self, messages: usize) {
        eventually(TIMEOUT, "every message is settled", async || {
            let stats = self.database.dead_letter_stats().await.unwrap();
            self.database.effects().await.len() + (stats.parked + stats.waiting) as usize >= messages
        })
        .await;
    }

    /// Waits until every published message is acknowledged.
    pub(crate) async fn is_drained(&self) {
        eventually(TIMEOUT, "everything is acknowledged", async || self.broker.unfinished(&topic(), &group()) == 0)
            .await;
    }

    /// Asserts that a new member of the group receives nothing.
    pub(crate) async fn all_is_acknowledged(&self) {
        let mut subscriber = self.broker.subscribe(&topic(), &group()).await.unwrap();
        let left = tokio::time::timeout(Duration::from_millis(20), subscriber.next()).await;
        assert!(left.is_err(), "not acknowledged: {left:?}");
    }

    /// All outcomes in a form that does not depend on timing: per key in order, keyless ones sorted.
    pub(crate) async fn account(&self) -> Account {
        let mut account = Account::default();
        for effect in self.database.effects().await {
            account.effects.entry(effect.key.clone()).or_default().push(effect);
        }
        for letter in self.letters().await {
            let key = letter.key.as_ref().map(ToString::to_string);
            let entry = (letter.message_id.to_string(), letter.status, letter.error_code, letter.attempts);
            account.letters.entry(key).or_default().push(entry);
        }
        if let Some(keyless) = account.effects.get_mut(&None) {
            keyless.sort();
        }
        if let Some(keyless) = account.letters.get_mut(&None) {
            keyless.sort_by(|a, b| a.0.cmp(&b.0));
        }
        account.handled = self.database.number("SELECT COUNT(*) FROM landfall_inbox").await;
        account
    }
}

/// Id, status, code and attempts.
type Letter = (String, DeadLetterStatus, String, u32);

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Account {
    pub(crate) effects: BTreeMap<Option<String>, Vec<Effect>>,
    pub(crate) letters: BTreeMap<Option<String>, Vec<Letter>>,
    /// The number of inbox rows.
    pub(crate) handled: i64,
}
