//! The two relays, and writing without one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use landfall::postgres::Postgres;
use landfall::relay::Relay;
use landfall::{Message, MessageId, Outcome, Position, Publisher};
use sqlx::AssertSqlSafe;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::poller;
use crate::Result;
use crate::bare::Bare;
use crate::workload::{KEYS, PAYLOAD_BYTES, TOPIC};

const STUCK_AFTER: Duration = Duration::from_secs(120);

/// The names of the peers, in the order of [`Side::ALL`] without Landfall.
pub(super) const PEER_NAMES: [&str; 2] = ["poller, 5 ms", "no relay"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Landfall,
    Poller,
    /// The poller's table, without a poller.
    NoRelay,
}

impl Side {
    pub(super) const ALL: [Self; 3] = [Self::Landfall, Self::Poller, Self::NoRelay];

    fn table(self) -> &'static str {
        if self == Self::Landfall { "landfall_outbox" } else { "polled_outbox" }
    }

    /// Commits one message as a service in any language would.
    pub(super) async fn insert(self, database: &Postgres, number: u64) -> Result<MessageId> {
        let insert =
            format!("INSERT INTO {} (topic, key, payload) VALUES ($1, $2, $3) RETURNING message_id", self.table());
        let id: Uuid = sqlx::query_scalar(AssertSqlSafe(insert))
            .bind(TOPIC)
            .bind(format!("order-{}", number % KEYS))
            .bind([b'x'; PAYLOAD_BYTES].as_slice())
            .fetch_one(database.pool())
            .await?;
        Ok(id.into())
    }

    /// Commits many messages in one statement.
    pub(super) async fn fill(self, database: &Postgres, rows: u64) -> Result<()> {
        let insert = format!(
            "INSERT INTO {} (topic, key, payload)
             SELECT $1, 'order-' || n % $2, convert_to(repeat('x', $3), 'UTF8') FROM generate_series(1, $4) n",
            self.table()
        );
        let insert = sqlx::query(AssertSqlSafe(insert)).bind(TOPIC).bind(KEYS as i64).bind(PAYLOAD_BYTES as i32);
        insert.bind(rows as i64).execute(database.pool()).await?;
        Ok(())
    }
}

/// A relay at work, and what it has handed to the broker.
pub(super) struct Running {
    stop: CancellationToken,
    task: Option<JoinHandle<Result<()>>>,
    arrivals: mpsc::UnboundedReceiver<(MessageId, Instant)>,
}

impl Running {
    /// Starts the relay of `side`, and waits until it has relayed a first message.
    pub(super) async fn start(side: Side, database: &Postgres) -> Result<Self> {
        let (arrived, arrivals) = mpsc::unbounded_channel();
        let (broker, stop) = (Arrivals(arrived), CancellationToken::new());
        let task = match side {
            Side::Landfall => {
                let relay = Relay::builder(database.clone(), Arc::new(broker)).build()?;
                let run = relay.run(stop.clone());
                Some(tokio::spawn(async move { Ok(run.await?) }))
            }
            Side::Poller => Some(tokio::spawn(poller::run(database.pool().clone(), broker, stop.clone()))),
            Side::NoRelay => None,
        };
        let mut running = Self { stop, task, arrivals };
        if running.task.is_some() {
            side.insert(database, 0).await?;
            running.next().await?;
        }
        Ok(running)
    }

    /// The next message that reached the broker, and when.
    pub(super) async fn next(&mut self) -> Result<(MessageId, Instant)> {
        let next = tokio::time::timeout(STUCK_AFTER, self.arrivals.recv()).await;
        Ok(next?.ok_or("the relay ended before all messages had arrived")?)
    }

    /// Waits until `messages` have reached the broker.
    pub(super) async fn drained(&mut self, messages: u64) -> Result<()> {
        if self.task.is_some() {
            for _ in 0..messages {
                self.next().await?;
            }
        }
        Ok(())
    }

    /// Stops the relay and empties the tables.
    pub(super) async fn end(self, database: &Postgres) -> Result<()> {
        self.stop.cancel();
        if let Some(task) = self.task {
            task.await??;
        }
        database.clear().await?;
        sqlx::raw_sql("TRUNCATE polled_outbox").execute(database.pool()).await?;
        Ok(())
    }
}

/// A broker that accepts everything and reports when.
struct Arrivals(mpsc::UnboundedSender<(MessageId, Instant)>);

#[async_trait]
impl Publisher for Arrivals {
    async fn publish(&self, batch: &[Message]) -> Vec<Outcome> {
        let at = Instant::now();
        for message in batch {
            // The receiver is closed once the sample is complete.
            let _ = self.0.send((message.id, at));
        }
        batch.iter().map(|_| Outcome::Accepted(Position { partition: 0, offset: 0 })).collect()
    }
}
