//! The memory of a relay under constant load: a process with only a relay in it, which drains a PostgreSQL outbox into
//! a broker that accepts everything.

use std::io::Read;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall::postgres::{Options, Postgres};
use landfall::relay::{self, Relay};
use landfall::{OutboxQueue, OutboxView};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use crate::Result;
use crate::machine;
use crate::relay::DiscardingBroker;
use crate::table::{Row, size_row};
use crate::workload::{PAYLOAD_BYTES, message};

/// Set for the relay's process: the URL of its database.
pub(crate) const RELAY_DATABASE_URL: &str = "LANDFALL_BENCH_RELAY_OF";
/// The daemon's default pool size.
const CONNECTIONS: u32 = 5;
const PER_SECOND: u64 = 5_000;
const BATCH: u64 = 500;
const DRAINED_WITHIN: Duration = Duration::from_secs(60);
/// The figure that the documentation promises.
const GOAL_MIB: f64 = 32.0;

pub(crate) async fn measure(database: &Postgres, url: &str, total: Duration) -> Result<Vec<Row>> {
    let relay = spawn(url)?;
    let process = relay.id().ok_or("the relay's process ended at once")?;
    database.append(&[message(0, PAYLOAD_BYTES)?]).await?;
    drained(database).await?;
    let quiet = resident_mebibytes(process)?;

    let started = Instant::now();
    let mut sent = 0;
    while started.elapsed() < total {
        let batch: Vec<_> = (0..BATCH).map(|n| message(sent + n, PAYLOAD_BYTES)).collect::<Result<_>>()?;
        database.append(&batch).await?;
        sent += BATCH;
        tokio::time::sleep_until(
            (started + Duration::from_secs(1) * (sent / BATCH) as u32 / (PER_SECOND / BATCH) as u32).into(),
        )
        .await;
    }
    drained(database).await?;
    let busy = resident_mebibytes(process)?;
    stop(relay).await?;
    let name = format!("relay's memory, PostgreSQL, {} messages passed", sent);
    Ok(vec![
        size_row(&name, "MiB", busy, "itself when quiet", quiet),
        size_row(&name, "MiB", busy, "the goal", GOAL_MIB),
    ])
}

/// The main function of the relay's process: runs a relay until the parent closes stdin.
pub(crate) async fn run_relay(url: &str) -> Result<()> {
    let database = Postgres::connect(url, Options { max_connections: CONNECTIONS, ..Options::default() }).await?;
    let (database, stop) = (Arc::new(database), CancellationToken::new());
    let relay =
        Relay::new(database.clone(), database, Arc::new(DiscardingBroker::default()), relay::Options::default());
    let relay = tokio::spawn(relay.run(stop.clone()));
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    stop.cancel();
    Ok(relay.await??)
}

fn spawn(url: &str) -> Result<Child> {
    let this = std::env::current_exe()?;
    Ok(Command::new(this).env(RELAY_DATABASE_URL, url).stdin(Stdio::piped()).kill_on_drop(true).spawn()?)
}

async fn stop(mut relay: Child) -> Result<()> {
    drop(relay.stdin.take());
    let status = relay.wait().await?;
    if status.success() { Ok(()) } else { Err(format!("the relay's process ended with {status}").into()) }
}

async fn drained(database: &Postgres) -> Result<()> {
    let started = Instant::now();
    while database.stats().await?.pending > 0 {
        if started.elapsed() > DRAINED_WITHIN {
            return Err(format!("the relay did not empty the outbox in {DRAINED_WITHIN:?}").into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

fn resident_mebibytes(process: u32) -> Result<f64> {
    Ok(machine::resident_bytes(&process.to_string())? as f64 / f64::from(1 << 20))
}
