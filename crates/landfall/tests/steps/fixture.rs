//! A real SQLite in a temporary folder and the in-memory broker.

use std::sync::Arc;
use std::time::Duration;

use landfall::adapter::{Lease, LeaseName};
use landfall::consume::{self, Consumer, Handler};
use landfall::relay::{self, Relay};
use landfall::{
    Backoff, Broker, DeadLetters, GroupName, Holder, Key, Leases, Message, OutboxQueue, OutboxStats, OutboxView,
    Schema, TopicName,
};
use landfall_sqlite::Sqlite;
use landfall_testkit::{MemoryBroker, eventually};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Fixture {
    pub(crate) database: Sqlite,
    pub(crate) broker: Arc<MemoryBroker>,
    pub(crate) stop: CancellationToken,
    _folder: tempfile::TempDir,
}

pub(crate) fn topic() -> TopicName {
    TopicName::new("orders").unwrap()
}

pub(crate) fn group() -> GroupName {
    GroupName::new("stock").unwrap()
}

pub(crate) fn message(key: &str, sequence: i64) -> Message {
    Message::new(topic(), format!("{key}{sequence}")).with_key(Key::new(key).unwrap()).with_sequence(sequence)
}

/// Few and short retries, so that a test sees every stage of a failure.
pub(crate) const QUICK: Backoff =
    Backoff { first: Duration::from_millis(5), cap: Duration::from_millis(20), max_attempts: 3 };

/// Leases that call a function on every request.
pub(crate) struct ObservedLeases<F> {
    pub(crate) leases: Sqlite,
    pub(crate) requested: F,
}

#[async_trait::async_trait]
impl<F: Fn() + Send + Sync> Leases for ObservedLeases<F> {
    async fn acquire(&self, name: &LeaseName, holder: &Holder, ttl: Duration) -> landfall::Result<Option<Lease>> {
        let result = self.leases.acquire(name, holder, ttl).await;
        (self.requested)();
        result
    }

    async fn renew(&self, leases: &[Lease], ttl: Duration) -> landfall::Result<Vec<Lease>> {
        self.leases.renew(leases, ttl).await
    }

    async fn release(&self, leases: &[Lease]) -> landfall::Result<()> {
        self.leases.release(leases).await
    }

    async fn held(&self, prefix: &str) -> landfall::Result<Vec<LeaseName>> {
        self.leases.held(prefix).await
    }

    async fn lapsed(&self, prefix: &str) -> landfall::Result<Vec<Holder>> {
        self.leases.lapsed(prefix).await
    }
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("test.db").display());
        let database = Sqlite::open(&url, Default::default()).await.unwrap();
        database.migrate().await.unwrap();
        sqlx::query("CREATE TABLE effects (name TEXT NOT NULL)").execute(database.pool()).await.unwrap();
        Self { database, broker: Arc::new(MemoryBroker::new()), stop: CancellationToken::new(), _folder: folder }
    }

    pub(crate) fn relay(&self) -> JoinHandle<landfall::Result<()>> {
        let options = relay::Options { backoff: QUICK, ..Default::default() };
        let relay = Relay::builder(self.database.clone(), self.broker.publisher()).options(options).build().unwrap();
        tokio::spawn(relay.run(self.stop.clone()))
    }

    pub(crate) fn consumer(&self, handler: impl Handler<Sqlite>) -> JoinHandle<landfall::Result<()>> {
        let options =
            consume::Options { backoff: QUICK, redrive_poll: Duration::from_millis(10), ..Default::default() };
        let (database, broker) = (self.database.clone(), self.broker.clone());
        let consumer = Consumer::builder(database, broker)
            .topic(topic())
            .group(group())
            .handler(handler)
            .options(options)
            .build()
            .unwrap();
        tokio::spawn(consumer.run(self.stop.clone()))
    }

    pub(crate) async fn append(&self, messages: &[Message]) {
        self.database.append(messages).await.unwrap();
    }

    /// Publishes messages like a producer without an outbox.
    pub(crate) async fn publish(&self, messages: &[Message]) {
        let outcomes = self.broker.publisher().publish(messages).await;
        assert!(outcomes.iter().all(landfall::Outcome::is_accepted), "{outcomes:?}");
    }

    pub(crate) async fn stats(&self) -> OutboxStats {
        self.database.stats().await.unwrap()
    }

    pub(crate) async fn effects(&self) -> Vec<String> {
        sqlx::query_scalar("SELECT name FROM effects ORDER BY rowid").fetch_all(self.database.pool()).await.unwrap()
    }

    pub(crate) async fn parked(&self) -> u64 {
        self.database.dead_letter_stats().await.unwrap().parked
    }

    /// The payloads in the broker, in the order published.
    pub(crate) fn published(&self) -> Vec<String> {
        let text = |message: &Message| String::from_utf8(message.payload.to_vec()).unwrap();
        self.broker.published().iter().map(|(_, message)| text(message)).collect()
    }

    pub(crate) async fn effects_become(&self, expected: &[&str]) {
        eventually(TIMEOUT, "the effects", async || self.effects().await.len() >= expected.len()).await;
        assert_eq!(self.effects().await, expected);
    }
}
