//! The longest wait of a writer while partitions of PostgreSQL's outbox are truncated continuously, compared with the
//! same writers and the same relay without truncation.
//!
//! In production a partition holds 65,536 ids and is truncated long after its last writer has committed. Here the id
//! sequence jumps to the next partition all the time. So writers with an id from before the jump still write into a
//! partition that is about to be truncated.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use landfall::postgres::Postgres;
use landfall::produce::Outbox;
use landfall::relay::{Options, Relay};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::Result;
use crate::bare::{Bare, Table};
use crate::contest::{self, Contestant, Sample, ensure_equal};
use crate::relay::DiscardingBroker;
use crate::table::{Row, longest_rows};
use crate::workload::{PAYLOAD_BYTES, message};

const WRITERS: usize = 4;
/// A shorter run has too few commits for a meaningful maximum.
const MIN_TOTAL: Duration = Duration::from_secs(21);
const STUCK_AFTER: Duration = Duration::from_secs(60);

#[allow(clippy::print_stderr, reason = "progress on a terminal")]
pub(crate) async fn measure(database: &Postgres, total: Duration) -> Result<Vec<Row>> {
    let name = format!("commit while parts are emptied, PostgreSQL, {WRITERS} writers");
    let emptied = AtomicU64::new(0);
    let mut contestants: [Box<dyn Contestant>; 2] =
        [Box::new(Writers { database, emptied: Some(&emptied) }), Box::new(Writers { database, emptied: None })];
    let samples = contest::compare(&name, total.max(MIN_TOTAL), &mut contestants).await?;
    drop(contestants);
    eprintln!("{name}: {} partitions truncated", emptied.load(Ordering::Relaxed));
    Ok(longest_rows(&name, &["while none is"], &samples))
}

struct Writers<'a> {
    database: &'a Postgres,
    /// Counts truncated partitions; `None` disables truncation.
    emptied: Option<&'a AtomicU64>,
}

#[async_trait]
impl Contestant for Writers<'_> {
    async fn sample(&mut self, length: Duration) -> Result<Sample> {
        let (database, stop) = (Arc::new(self.database.clone()), CancellationToken::new());
        let relay = Relay::new(database.clone(), database, Arc::new(DiscardingBroker::default()), Options::default());
        let relay = tokio::spawn(relay.run(stop.clone()));
        let mut writers = JoinSet::new();
        for number in 0..WRITERS {
            writers.spawn(write(self.database.clone(), number as u64, length));
        }
        if let Some(emptied) = self.emptied {
            let rotated = rotate(self.database, length).await?;
            if rotated == 0 {
                return Err("no partition was truncated; the measurement is invalid".into());
            }
            emptied.fetch_add(rotated, Ordering::Relaxed);
        }
        let mut latencies = Vec::new();
        while let Some(written) = writers.join_next().await {
            latencies.extend(written??);
        }
        let started = Instant::now();
        while self.database.count(Table::Outbox).await? > 0 {
            if started.elapsed() > STUCK_AFTER {
                return Err(format!("the relay did not drain the outbox in {STUCK_AFTER:?}").into());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        stop.cancel();
        relay.await??;
        ensure_equal("rows left in the outbox", self.database.count(Table::Outbox).await?, 0)?;
        self.database.clear().await?;
        Ok(Sample::Latencies(latencies))
    }
}

/// Commits messages in a loop. Returns the time of each, from before `BEGIN` until the commit returns.
async fn write(database: Postgres, number: u64, length: Duration) -> Result<Vec<Duration>> {
    let outbox = Outbox::new(database);
    let (started, mut latencies) = (Instant::now(), Vec::new());
    while started.elapsed() < length {
        let message = message(number, PAYLOAD_BYTES)?;
        let begun = Instant::now();
        let transaction = outbox.begin().await?;
        outbox.commit_with(transaction, std::slice::from_ref(&message)).await?;
        latencies.push(begun.elapsed());
    }
    Ok(latencies)
}

/// Advances the id sequence to the next partition and truncates what it can, without a pause.
async fn rotate(database: &Postgres, length: Duration) -> Result<u64> {
    let jump =
        "SELECT setval('landfall_outbox_id_seq', ((last_value >> 16) + 1) << 16, false) FROM landfall_outbox_id_seq";
    let (started, mut emptied) = (Instant::now(), 0);
    while started.elapsed() < length {
        sqlx::query(jump).execute(database.pool()).await?;
        emptied += database.rotate().await? as u64;
    }
    Ok(emptied)
}
