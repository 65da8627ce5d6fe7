//! A migrated database, and the messages that both drivers send.

use std::time::{Duration, Instant};

use landfall_core::adapter::Shard;
use landfall_core::{Holder, Key, Kind, Leases, Message, Mode, OutboxQueue, OutboxView, Schema, Timestamp, TopicName};
use landfall_postgres::{Options, Postgres};
use landfall_testkit::servers::fresh_postgres_database;

pub(crate) const SOON: Duration = Duration::from_secs(60);

pub(crate) struct Stage {
    pub(crate) url: String,
    pub(crate) database: Postgres,
}

impl Stage {
    /// Returns `None`, and reports it, if there is no server.
    pub(crate) async fn new() -> Option<Self> {
        let url = fresh_postgres_database().await?;
        let database = Postgres::connect(&url, Options { max_connections: 3, ..Options::default() }).await.unwrap();
        database.migrate().await.unwrap();
        sqlx::query("CREATE TABLE orders (id bigint PRIMARY KEY)").execute(database.pool()).await.unwrap();
        Some(Self { url, database })
    }

    /// Returns what a relay would publish, in order.
    pub(crate) async fn due(&self) -> Vec<Message> {
        let mut leases = Vec::new();
        for shard in 0..self.database.shards() {
            let name = Shard(shard).lease_name();
            leases.extend(self.database.acquire(&name, &Holder("test".into()), SOON).await.unwrap());
        }
        let entries = self.database.next(&leases, 10_000).await.unwrap();
        entries.into_iter().map(|entry| entry.message.unwrap()).collect()
    }

    pub(crate) async fn pending(&self) -> u64 {
        self.database.stats().await.unwrap().pending
    }

    pub(crate) async fn orders(&self) -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM orders").fetch_one(self.database.pool()).await.unwrap()
    }

    /// Returns once the relay listens and is no longer woken.
    pub(crate) async fn relay_sleeps(&self) {
        let quiet = Duration::from_millis(300);
        let started = Instant::now();
        loop {
            let asked = Instant::now();
            self.database.wait(quiet).await;
            if asked.elapsed() >= quiet {
                return;
            }
            assert!(started.elapsed() < SOON, "the relay was woken again and again");
        }
    }

    pub(crate) async fn relay_wakes(&self) {
        let asked = Instant::now();
        self.database.wait(SOON * 2).await;
        assert!(asked.elapsed() < SOON, "the relay was not woken");
    }
}

/// A message without default values, full of characters that need escaping.
pub(crate) fn elaborate() -> Message {
    let mut message = Message::new(topic(), vec![0, 255, b'\'', b'\\', 0, 7])
        .with_key(Key::new("客户 '42' \\ \"eu\"").unwrap())
        .with_sequence(-7)
        .with_kind(Kind::new("order.placed/ü").unwrap())
        .with_mode(Mode::AtLeastOnce);
    message.headers.insert("tenant", "北京 \"1\" \\ 'x'").unwrap();
    message.headers.insert("empty", "").unwrap();
    message.time = Timestamp::from_millis(1_700_000_000_123);
    message
}

pub(crate) fn plain() -> Message {
    Message::new(topic(), "{}")
}

/// More messages of one key than fit into one statement.
pub(crate) fn many() -> Vec<Message> {
    let numbered = |sequence| {
        Message::new(topic(), format!("{sequence}")).with_key(Key::new("k").unwrap()).with_sequence(sequence)
    };
    (0..1203).map(numbered).collect()
}

pub(crate) fn too_large() -> Message {
    Message::new(topic(), vec![0; 1024 * 1024 + 1])
}

fn topic() -> TopicName {
    TopicName::new("orders").unwrap()
}
