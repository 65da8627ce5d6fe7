//! What an idle relay costs after it has drained a backlog: CPU of the server, and transactions.

use std::time::Duration;

use landfall::postgres::Postgres;

use super::server_cpu::ServerCpu;
use super::side::{PEER_NAMES, Running, Side};
use crate::Result;
use crate::table::{Row, size_row};

const BACKLOG: u64 = 200_000;
/// Until the relay rests: it truncates partitions after five idle seconds.
const SETTLE: Duration = Duration::from_secs(15);
const LENGTH: Duration = Duration::from_secs(20);

/// The cost of one side at rest.
struct AtRest {
    cpu_percent: f64,
    transactions: f64,
}

pub(super) async fn measure(database: &Postgres) -> Result<Vec<Row>> {
    let landfall = at_rest(Side::Landfall, database).await?;
    let poller = at_rest(Side::Poller, database).await?;
    let name = format!("idle after a backlog of {BACKLOG}, PostgreSQL");
    let cpu = size_row(
        &format!("{name}, server CPU"),
        "% of a core",
        landfall.cpu_percent,
        PEER_NAMES[0],
        poller.cpu_percent,
    );
    let transactions =
        size_row(&format!("{name}, transactions"), "/s", landfall.transactions, PEER_NAMES[0], poller.transactions);
    Ok(vec![cpu, transactions])
}

async fn at_rest(side: Side, database: &Postgres) -> Result<AtRest> {
    let mut running = Running::start(side, database).await?;
    side.fill(database, BACKLOG).await?;
    running.drained(BACKLOG).await?;
    tokio::time::sleep(SETTLE).await;
    let cpu = ServerCpu::of(database.pool()).await?;
    let (used, committed) = (cpu.used()?, transactions(database).await?);
    tokio::time::sleep(LENGTH).await;
    let used = cpu.used()? - used;
    let committed = transactions(database).await? - committed;
    running.end(database).await?;
    let seconds = LENGTH.as_secs_f64();
    // A process that reads at rest would otherwise divide by zero.
    let cpu_percent = (used.as_secs_f64() / seconds * 100.0).max(0.05);
    Ok(AtRest { cpu_percent, transactions: committed as f64 / seconds })
}

/// Transactions of this database since its statistics began. The server publishes them with up to a second's delay.
async fn transactions(database: &Postgres) -> Result<i64> {
    let count = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()";
    Ok(sqlx::query_scalar(count).fetch_one(database.pool()).await?)
}
