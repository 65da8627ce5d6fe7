//! How fast the relay empties an outbox into a broker that accepts everything at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use landfall::adapter::{Lease, OutboxEntry, Settlement, Shard};
use landfall::postgres::Postgres;
use landfall::relay::Relay;
use landfall::{Message, OutboxQueue, Outcome, Position, Publisher, RowId};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::Result;
use crate::bare::{BATCH, Bare, Table};
use crate::contest::{self, Contestant, Pace, Turn, ensure_equal};
use crate::table::{Row, rate_rows};

/// A relay that takes longer than this for a turn is stuck, and the run ends with a sentence.
const STUCK_AFTER: Duration = Duration::from_secs(120);

pub(crate) async fn measure<D: Bare>(database: &D, total: Duration) -> Result<Vec<Row>> {
    contest(database, total, format!("relay to a no-op broker, {}", D::NAME)).await
}

/// The same while somebody keeps a transaction open, beside the same while nobody does.
pub(crate) async fn measure_beside_an_old_transaction(database: &Postgres, total: Duration) -> Result<Vec<Row>> {
    let name = "relay, an old transaction open, PostgreSQL";
    let landfall = || Landfall { database, pace: Pace::guess(10_000.0) };
    let mut contestants: [Box<dyn Contestant>; 3] = [
        Box::new(BesideAnOldTransaction { database, contestant: landfall() }),
        Box::new(landfall()),
        Box::new(BesideAnOldTransaction {
            database,
            contestant: ClaimAndDelete { database, pace: Pace::guess(10_000.0) },
        }),
    ];
    let turns = contest::hold(name, total, &mut contestants).await?;
    Ok(rate_rows(name, "rows/s", &["itself without one", "claim 500 … DELETE, one open"], &turns))
}

async fn contest<D: Bare>(database: &D, total: Duration, name: String) -> Result<Vec<Row>> {
    let mut contestants: [Box<dyn Contestant>; 3] = [
        Box::new(Landfall { database, pace: Pace::guess(10_000.0) }),
        Box::new(ClaimAndDelete { database, pace: Pace::guess(10_000.0) }),
        Box::new(Select { database }),
    ];
    let turns = contest::hold(&name, total, &mut contestants).await?;
    Ok(rate_rows(&name, "rows/s", &["claim 500 … DELETE", "SELECT 500 (removes nothing)"], &turns))
}

struct Landfall<'a, D> {
    database: &'a D,
    pace: Pace,
}

#[async_trait]
impl<D: Bare> Contestant for Landfall<'_, D> {
    /// From the moment the relay may look until the last row is settled. It has its leases by then: they are taken
    /// once in a relay's life.
    async fn turn(&mut self, length: Duration) -> Result<Turn> {
        let rows = self.pace.operations(length);
        self.database.fill(rows).await?;
        let elapsed = drain(self.database, rows).await?;
        self.database.clear().await?;
        self.pace.learn(rows, elapsed);
        Ok(Turn::Rate { operations: rows, elapsed })
    }
}

/// While somebody keeps a transaction open, who wrote something and will look at the past.
struct BesideAnOldTransaction<'a, C> {
    database: &'a Postgres,
    contestant: C,
}

#[async_trait]
impl<C: Contestant> Contestant for BesideAnOldTransaction<'_, C> {
    async fn turn(&mut self, length: Duration) -> Result<Turn> {
        let mut old = self.database.pool().begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ").await?;
        sqlx::query("SELECT pg_current_xact_id()").execute(&mut *old).await?;
        let turn = self.contestant.turn(length).await;
        old.rollback().await?;
        turn
    }
}

/// How long a relay takes to send `rows`, which are all there are.
pub(crate) async fn drain<D: Bare>(database: &D, rows: u64) -> Result<Duration> {
    let gate = Arc::new(Gate::new(database.clone()));
    let broker = Arc::new(Nowhere::default());
    let stop = CancellationToken::new();
    let relay = Relay::builder_from_parts(gate.clone(), Arc::new(database.clone()), broker.clone()).build()?;
    let relay = tokio::spawn(relay.run(stop.clone()));
    gate.wait_for_leases(database).await?;

    let started = Instant::now();
    gate.open();
    let settled = tokio::time::timeout(STUCK_AFTER, gate.settled(rows)).await;
    let elapsed = started.elapsed();

    stop.cancel();
    relay.await??;
    settled.map_err(|_| format!("the relay did not settle {rows} rows in {STUCK_AFTER:?}"))?;
    ensure_equal("messages published", broker.accepted.load(Ordering::Relaxed), rows)?;
    ensure_equal("rows left in the outbox", database.count(Table::Outbox).await?, 0)?;
    Ok(elapsed)
}

/// A broker that accepts everything and keeps nothing.
#[derive(Default)]
pub(crate) struct Nowhere {
    accepted: AtomicU64,
}

#[async_trait]
impl Publisher for Nowhere {
    async fn publish(&self, batch: &[Message]) -> Vec<Outcome> {
        let first = self.accepted.fetch_add(batch.len() as u64, Ordering::Relaxed);
        (first..).take(batch.len()).map(|offset| Outcome::Accepted(Position { partition: 0, offset })).collect()
    }
}

/// The outbox as the relay sees it: empty until the gate opens, and counting what is settled.
struct Gate<D> {
    database: D,
    is_open: AtomicBool,
    settled: AtomicU64,
    progress: Notify,
}

impl<D: Bare> Gate<D> {
    fn new(database: D) -> Self {
        Self { database, is_open: AtomicBool::new(false), settled: AtomicU64::new(0), progress: Notify::new() }
    }

    async fn wait_for_leases(&self, database: &D) -> Result<()> {
        let started = Instant::now();
        while database.held(Shard::LEASES).await?.len() < usize::from(self.shards()) {
            if started.elapsed() > STUCK_AFTER {
                return Err("the relay did not get the leases of all shards".into());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    fn open(&self) {
        self.is_open.store(true, Ordering::Release);
        self.database.wake();
    }

    async fn settled(&self, rows: u64) {
        while self.settled.load(Ordering::Acquire) < rows {
            self.progress.notified().await;
        }
    }
}

#[async_trait]
impl<D: Bare> OutboxQueue for Gate<D> {
    async fn append(&self, messages: &[Message]) -> landfall::Result<()> {
        self.database.append(messages).await
    }

    fn shards(&self) -> u16 {
        self.database.shards()
    }

    async fn next(&self, leases: &[Lease], limit: usize) -> landfall::Result<Vec<OutboxEntry>> {
        if !self.is_open.load(Ordering::Acquire) {
            return Ok(Vec::new());
        }
        self.database.next(leases, limit).await
    }

    async fn settle(&self, leases: &[Lease], settlements: &[Settlement]) -> landfall::Result<Vec<RowId>> {
        let settled = self.database.settle(leases, settlements).await?;
        self.settled.fetch_add(settled.len() as u64, Ordering::AcqRel);
        self.progress.notify_one();
        Ok(settled)
    }

    async fn wait(&self, at_most: Duration) {
        self.database.wait(at_most).await;
    }
}

/// The loop that everybody writes first: claim some rows and delete them in one statement, until there are none.
struct ClaimAndDelete<'a, D> {
    database: &'a D,
    pace: Pace,
}

#[async_trait]
impl<D: Bare> Contestant for ClaimAndDelete<'_, D> {
    async fn turn(&mut self, length: Duration) -> Result<Turn> {
        let rows = self.pace.operations(length);
        self.database.fill_peers(rows).await?;
        let started = Instant::now();
        let mut claimed = 0;
        loop {
            match self.database.claim_and_delete().await? {
                0 => break,
                count => claimed += count,
            }
        }
        let elapsed = started.elapsed();
        ensure_equal("rows claimed", claimed, rows)?;
        self.database.clear().await?;
        self.pace.learn(rows, elapsed);
        Ok(Turn::Rate { operations: rows, elapsed })
    }
}

/// Only reads, always the same rows: what the connection and the driver can carry.
struct Select<'a, D> {
    database: &'a D,
}

#[async_trait]
impl<D: Bare> Contestant for Select<'_, D> {
    async fn turn(&mut self, length: Duration) -> Result<Turn> {
        let rows = 5_000;
        self.database.fill_peers(rows).await?;
        let started = Instant::now();
        let mut operations = 0;
        while started.elapsed() < length {
            let read = self.database.select().await?;
            ensure_equal("rows read at a time", read, BATCH)?;
            operations += read;
        }
        let elapsed = started.elapsed();
        ensure_equal("rows in the outbox", self.database.count_peers().await?, rows)?;
        self.database.clear().await?;
        Ok(Turn::Rate { operations, elapsed })
    }
}
