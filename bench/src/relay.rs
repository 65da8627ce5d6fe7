//! How fast the relay drains an outbox into a broker that accepts everything at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use landfall::postgres::Postgres;
use landfall::relay::{Options, Relay};
use landfall::{Lease, Message, OutboxEntry, OutboxQueue, Outcome, Position, Publisher, RowId, Settlement, Shard};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::Result;
use crate::bare::{BATCH, Bare, Table};
use crate::contest::{self, Contestant, Pace, Sample, ensure_equal};
use crate::table::{Row, rate_rows};

/// A relay that needs longer than this for a sample is stuck; the run fails.
const STUCK_AFTER: Duration = Duration::from_secs(120);

pub(crate) async fn measure<D: Bare>(database: &D, total: Duration) -> Result<Vec<Row>> {
    contest(database, total, format!("relay to a no-op broker, {}", D::NAME)).await
}

/// The same with an old open transaction, compared with none.
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
    let samples = contest::compare(name, total, &mut contestants).await?;
    Ok(rate_rows(name, "rows/s", &["itself without one", "claim 500 … DELETE, one open"], &samples))
}

async fn contest<D: Bare>(database: &D, total: Duration, name: String) -> Result<Vec<Row>> {
    let mut contestants: [Box<dyn Contestant>; 3] = [
        Box::new(Landfall { database, pace: Pace::guess(10_000.0) }),
        Box::new(ClaimAndDelete { database, pace: Pace::guess(10_000.0) }),
        Box::new(Select { database }),
    ];
    let samples = contest::compare(&name, total, &mut contestants).await?;
    Ok(rate_rows(&name, "rows/s", &["claim 500 … DELETE", "SELECT 500 (removes nothing)"], &samples))
}

struct Landfall<'a, D> {
    database: &'a D,
    pace: Pace,
}

#[async_trait]
impl<D: Bare> Contestant for Landfall<'_, D> {
    /// Measures from the relay's first read until the last row is settled. The relay already holds its leases, because
    /// it acquires them only once.
    async fn sample(&mut self, length: Duration) -> Result<Sample> {
        let rows = self.pace.operations(length);
        self.database.fill(rows).await?;
        let elapsed = drain(self.database, rows).await?;
        self.database.clear().await?;
        self.pace.learn(rows, elapsed);
        Ok(Sample::Rate { operations: rows, elapsed })
    }
}

/// Runs the contestant with an open transaction that has a transaction id and an old snapshot.
struct BesideAnOldTransaction<'a, C> {
    database: &'a Postgres,
    contestant: C,
}

#[async_trait]
impl<C: Contestant> Contestant for BesideAnOldTransaction<'_, C> {
    async fn sample(&mut self, length: Duration) -> Result<Sample> {
        let mut old = self.database.pool().begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ").await?;
        sqlx::query("SELECT pg_current_xact_id()").execute(&mut *old).await?;
        let sample = self.contestant.sample(length).await;
        old.rollback().await?;
        sample
    }
}

/// Measures how long a relay takes to publish `rows`, the only rows of the outbox.
pub(crate) async fn drain<D: Bare>(database: &D, rows: u64) -> Result<Duration> {
    let gate = Arc::new(GatedOutbox::new(database.clone()));
    let broker = Arc::new(DiscardingBroker::default());
    let stop = CancellationToken::new();
    let relay = Relay::new(gate.clone(), Arc::new(database.clone()), broker.clone(), Options::default());
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

/// A broker that accepts everything and stores nothing.
#[derive(Default)]
pub(crate) struct DiscardingBroker {
    accepted: AtomicU64,
}

#[async_trait]
impl Publisher for DiscardingBroker {
    async fn publish(&self, batch: &[Message]) -> Vec<Outcome> {
        let first = self.accepted.fetch_add(batch.len() as u64, Ordering::Relaxed);
        (first..).take(batch.len()).map(|offset| Outcome::Accepted(Position { partition: 0, offset })).collect()
    }
}

/// The outbox as the relay sees it: empty until the gate opens. Counts settled rows.
struct GatedOutbox<D> {
    database: D,
    is_open: AtomicBool,
    settled: AtomicU64,
    progress: Notify,
}

impl<D: Bare> GatedOutbox<D> {
    fn new(database: D) -> Self {
        Self { database, is_open: AtomicBool::new(false), settled: AtomicU64::new(0), progress: Notify::new() }
    }

    async fn wait_for_leases(&self, database: &D) -> Result<()> {
        let started = Instant::now();
        while database.held(Shard::LEASES).await?.len() < usize::from(self.shards()) {
            if started.elapsed() > STUCK_AFTER {
                return Err("the relay did not acquire the leases of all shards".into());
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
impl<D: Bare> OutboxQueue for GatedOutbox<D> {
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

/// The usual hand-written loop: claim and delete some rows in one statement, until the table is empty.
struct ClaimAndDelete<'a, D> {
    database: &'a D,
    pace: Pace,
}

#[async_trait]
impl<D: Bare> Contestant for ClaimAndDelete<'_, D> {
    async fn sample(&mut self, length: Duration) -> Result<Sample> {
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
        Ok(Sample::Rate { operations: rows, elapsed })
    }
}

/// Only reads, always the same rows: the limit of the connection and the driver.
struct Select<'a, D> {
    database: &'a D,
}

#[async_trait]
impl<D: Bare> Contestant for Select<'_, D> {
    async fn sample(&mut self, length: Duration) -> Result<Sample> {
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
        Ok(Sample::Rate { operations, elapsed })
    }
}
