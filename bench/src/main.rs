//! One command, one table: Landfall compared with its peers and the machine's limits, in one run.
//!
//! ```text
//! cargo run --release -p landfall-bench -- \
//!     [--seconds N] [--only NAME] [--database NAME] [--broker NAME] [--records N] [--json]
//! ```
//!
//! Every measurement is a contest: Landfall and its peers alternate several times on the same server and disk, so that
//! other load on the machine affects all of them alike. Every sample checks that its result is stored. The table goes
//! to stdout, everything else to stderr.

mod bare;
mod brokers;
mod consumer;
mod consumer_batch;
mod consumer_hot_key;
mod contest;
mod half_message;
mod half_peer;
mod half_retention;
mod half_scan;
mod idempotency;
mod latency;
mod log_append;
mod log_dedup;
mod log_fill;
mod log_memory;
mod log_open;
mod log_read;
mod machine;
mod observed;
mod outbox_insert;
mod preloaded_broker;
mod relay;
mod relay_cost;
mod relay_latency;
mod relay_memory;
mod relay_passed;
mod rotation_pause;
mod table;
mod workload;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use landfall::mysql::MySql;
use landfall::postgres::Postgres;
use landfall::sqlite::Sqlite;

use crate::bare::Bare;
use crate::table::{Report, Row};

/// Errors end the run and are printed; the program never decides by their kind.
type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// Measures Landfall compared with its peers and prints one table.
#[derive(Debug, Parser)]
#[command(name = "landfall-bench")]
struct Arguments {
    /// Time for each side of a row, in seconds, over all its samples.
    #[arg(long, value_name = "N", default_value_t = 3.0, value_parser = seconds)]
    seconds: f64,
    /// Run only this measurement; may be repeated.
    #[arg(long, value_name = "NAME", value_enum)]
    only: Vec<Measurement>,
    /// Run only on this database; may be repeated.
    #[arg(long, value_name = "NAME", value_enum)]
    database: Vec<On>,
    /// Run only over this broker; may be repeated.
    #[arg(long, value_name = "NAME", value_enum)]
    broker: Vec<brokers::BrokerChoice>,
    /// Number of live ids in log-dedup, and of records that pass in log-memory and relay-passed.
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1_000..))]
    records: u64,
    /// Print one JSON object instead of the table, with the ratio of every round.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Measurement {
    OutboxInsert,
    /// Only on PostgreSQL: half messages beside the outbox and plain SQL.
    HalfMessage,
    /// Only on request: over HTTP beside DTM, which Go builds; needs the daemon beside this program.
    HalfPeer,
    /// Only on request: check-backs beside a million undecided half messages, on PostgreSQL.
    HalfScan,
    /// Only on request: the longest wait of a sender while expired days of half messages are dropped on PostgreSQL.
    HalfRetention,
    /// Only on PostgreSQL, and in memory: records beside plain SQL that does as much by hand.
    Idempotency,
    Relay,
    RelayLatency,
    RelayMemory,
    /// Only on request: what a relay costs PostgreSQL, beside the poller of most tutorials. Takes five minutes.
    RelayCost,
    /// Only on request: passes `--records` messages through PostgreSQL.
    RelayPassed,
    /// Only on request: the longest wait of a writer while partitions of PostgreSQL's outbox are truncated.
    RotationPause,
    LogAppend,
    LogRead,
    /// Only on request: fills a log with `--records` first.
    LogDedup,
    /// Only on request: passes `--records` through a log.
    LogMemory,
    /// Only on request: writes and copies a gibibyte.
    LogOpen,
    Consumer,
    ConsumerBatch,
    ConsumerHotKey,
    Latency,
    /// Only on request: every broker compared with its own client, and the whole path over it.
    Broker,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum On {
    Sqlite,
    Postgres,
    Mysql,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("must be a number from 0.1 to 3600".into()),
    }
}

#[tokio::main]
#[allow(clippy::print_stdout, clippy::print_stderr, reason = "this program prints a table")]
async fn main() -> ExitCode {
    if let Ok(url) = std::env::var(relay_memory::RELAY_DATABASE_URL) {
        return match relay_memory::run_relay(&url).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("landfall-bench: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let arguments = Arguments::parse();
    match run(&arguments).await {
        Ok(report) if arguments.json => println!("{}", report.to_json()),
        Ok(report) => print!("{}", report.to_markdown()),
        Err(error) => {
            eprintln!("landfall-bench: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

async fn run(arguments: &Arguments) -> Result<Report> {
    let wanted = |measurement| arguments.only.is_empty() || arguments.only.contains(&measurement);
    let total = Duration::from_secs_f64(arguments.seconds);
    let mut report = Report::new(machine::describe()?, arguments.seconds);

    if wanted(Measurement::LogAppend) {
        report.rows.extend(log_append::measure(total).await?);
    }
    if wanted(Measurement::LogRead) {
        report.rows.extend(log_read::measure(total).await?);
    }
    if arguments.only.contains(&Measurement::LogDedup) {
        report.rows.extend(log_dedup::measure(total, arguments.records).await?);
    }
    if arguments.only.contains(&Measurement::LogOpen) {
        report.rows.extend(log_open::measure(total).await?);
    }
    if arguments.only.contains(&Measurement::LogMemory) {
        report.rows.extend(log_memory::measure(arguments.records).await?);
    }
    if arguments.only.contains(&Measurement::Broker) {
        let (rows, software, not_run) = brokers::measure(&arguments.broker, total).await?;
        report.rows.extend(rows);
        report.software.extend(software);
        report.not_run.extend(not_run);
    }
    if wanted(Measurement::Idempotency) {
        report.rows.extend(idempotency::measure_memory(total).await?);
    }
    let on_databases = [
        Measurement::OutboxInsert,
        Measurement::HalfMessage,
        Measurement::Idempotency,
        Measurement::Relay,
        Measurement::RelayLatency,
        Measurement::RelayMemory,
        Measurement::Consumer,
        Measurement::ConsumerBatch,
        Measurement::ConsumerHotKey,
        Measurement::Latency,
    ];
    let passed = arguments.only.contains(&Measurement::RelayPassed);
    let rotation = arguments.only.contains(&Measurement::RotationPause);
    let half_peer = arguments.only.contains(&Measurement::HalfPeer);
    let half_scan = arguments.only.contains(&Measurement::HalfScan);
    let half_retention = arguments.only.contains(&Measurement::HalfRetention);
    let cost = arguments.only.contains(&Measurement::RelayCost);
    let on_request = passed || rotation || half_peer || half_scan || half_retention || cost;
    if !on_request && !on_databases.into_iter().any(wanted) {
        return Ok(report);
    }
    let on = |database| arguments.database.is_empty() || arguments.database.contains(&database);
    if on(On::Sqlite) {
        let folder = tempfile::tempdir()?;
        let sqlite = <Sqlite as Bare>::open(&folder.path().join("bench.db").display().to_string()).await?;
        report.software.push(sqlite.version().await?);
        report.rows.extend(on_database(&sqlite, &wanted, total).await?);
    }
    if on(On::Postgres) {
        match landfall_testkit::servers::fresh_postgres_database().await {
            Some(url) => {
                let postgres = <Postgres as Bare>::open(&url).await?;
                report.software.push(postgres.version().await?);
                report.rows.extend(on_database(&postgres, &wanted, total).await?);
                if half_peer {
                    match half_peer::measure(&postgres, &url, 8, total).await? {
                        Ok(rows) => report.rows.extend(rows),
                        Err(why) => report.not_run.push(why),
                    }
                }
                report.rows.extend(half_messages(&postgres, wanted(Measurement::HalfMessage), half_scan, total).await?);
                if wanted(Measurement::Idempotency) {
                    for clients in <Postgres as Bare>::CLIENTS {
                        report.rows.extend(idempotency::measure(&postgres, *clients, total).await?);
                    }
                }
                if half_retention {
                    report.rows.extend(half_retention::measure(&postgres, total).await?);
                }
                if wanted(Measurement::Relay) {
                    report.rows.extend(relay::measure_beside_an_old_transaction(&postgres, total).await?);
                }
                if wanted(Measurement::ConsumerBatch) {
                    report.rows.extend(consumer_batch::measure(&url, total).await?);
                }
                if wanted(Measurement::ConsumerHotKey) {
                    report.rows.extend(consumer_hot_key::measure(&url, total).await?);
                }
                if passed && let Some(url) = landfall_testkit::servers::fresh_postgres_database().await {
                    let fresh = <Postgres as Bare>::open(&url).await?;
                    report.rows.extend(relay_passed::measure(&postgres, &fresh, arguments.records).await?);
                }
                if cost {
                    report.rows.extend(relay_cost::measure(&postgres, total).await?);
                }
                if rotation {
                    report.rows.extend(rotation_pause::measure(&postgres, total).await?);
                }
                if wanted(Measurement::RelayMemory) {
                    report.rows.extend(relay_memory::measure(&postgres, &url, total).await?);
                }
            }
            None => report.not_run.push("everything on PostgreSQL".into()),
        }
    }
    if on(On::Mysql) {
        match landfall_testkit::servers::fresh_mysql_database().await {
            Some(url) => {
                let mysql = <MySql as Bare>::open(&url).await?;
                report.software.push(mysql.version().await?);
                report.rows.extend(on_database(&mysql, &wanted, total).await?);
            }
            None => report.not_run.push("everything on MariaDB".into()),
        }
    }
    Ok(report)
}

/// Runs the measurements of half messages, which PostgreSQL stores in partitions.
async fn half_messages(postgres: &Postgres, message: bool, scan: bool, total: Duration) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    if message {
        for clients in <Postgres as Bare>::CLIENTS {
            rows.extend(half_message::measure(postgres, *clients, total).await?);
        }
    }
    if scan && let Some(url) = landfall_testkit::servers::fresh_postgres_database().await {
        let empty = <Postgres as Bare>::open(&url).await?;
        rows.extend(half_scan::measure(postgres, &empty, total).await?);
    }
    Ok(rows)
}

/// Runs the selected database measurements, in the order of a message's path.
async fn on_database<D: Bare>(database: &D, wanted: impl Fn(Measurement) -> bool, total: Duration) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    if wanted(Measurement::OutboxInsert) {
        for clients in D::CLIENTS {
            rows.extend(outbox_insert::measure(database, *clients, total).await?);
        }
    }
    if wanted(Measurement::Relay) {
        rows.extend(relay::measure(database, total).await?);
    }
    if wanted(Measurement::RelayLatency) {
        rows.extend(relay_latency::measure(database, total).await?);
    }
    if wanted(Measurement::Consumer) {
        for concurrency in [1, 16] {
            rows.extend(consumer::measure(database, concurrency, total).await?);
        }
    }
    if wanted(Measurement::Latency) {
        rows.extend(latency::measure(database, total).await?);
    }
    Ok(rows)
}
