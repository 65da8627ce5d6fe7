//! Whether the relay stays as fast and its tables as small after very many messages, with a transaction that is open
//! all the time. It is compared with a fresh outbox on the same server, alternately, and with its own first rounds.

use std::time::Duration;

use async_trait::async_trait;
use landfall::postgres::Postgres;

use crate::Result;
use crate::bare::Bare;
use crate::contest::{self, Contestant, Sample};
use crate::log_dedup::count;
use crate::relay::drain;
use crate::table::{Row, rate_rows, size_row, speed_row};

/// Messages written and then published in each round.
const ROUND: u64 = 250_000;
/// The number of rounds at each end whose speed is compared.
const COMPARED: usize = 5;

#[allow(clippy::print_stderr, reason = "progress on a terminal")]
pub(crate) async fn measure(database: &Postgres, fresh: &Postgres, records: u64) -> Result<Vec<Row>> {
    let mut old = database.pool().begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ").await?;
    sqlx::query("SELECT pg_current_xact_id()").execute(&mut *old).await?;
    let rounds = records.div_ceil(ROUND).max(2 * COMPARED as u64);
    let (mut speeds, mut sizes) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        database.fill(ROUND).await?;
        speeds.push(ROUND as f64 / drain(database, ROUND).await?.as_secs_f64());
        sizes.push(size_at_rest(database).await?);
        if round % 8 == 0 {
            eprintln!("relay-passed: {} of {} messages have passed", count(round * ROUND), count(rounds * ROUND));
        }
    }
    let name = format!("relay after {} messages, an old transaction open, PostgreSQL", count(rounds * ROUND));
    let mut contestants: [Box<dyn Contestant>; 2] = [Box::new(Round(database)), Box::new(Round(fresh))];
    let samples = contest::compare(&name, Duration::ZERO, &mut contestants).await?;
    old.rollback().await?;
    let (first, last) = (median(&speeds[..COMPARED]), median(&speeds[speeds.len() - COMPARED..]));
    let bytes = format!("{name}, tables and indexes at rest");
    let mut rows = rate_rows(&name, "rows/s", &["a fresh outbox"], &samples);
    rows.extend([
        speed_row(&name, "rows/s", last, "itself, the first 5 of them", first),
        size_row(&bytes, "MiB", sizes[sizes.len() - 1], "itself after the first", sizes[0]),
    ]);
    Ok(rows)
}

/// A round as a sample; it has no fixed length.
struct Round<'a>(&'a Postgres);

#[async_trait]
impl Contestant for Round<'_> {
    async fn sample(&mut self, _: Duration) -> Result<Sample> {
        self.0.fill(ROUND).await?;
        Ok(Sample::Rate { operations: ROUND, elapsed: drain(self.0, ROUND).await? })
    }
}

/// The size of the outbox once everything is settled and every partition that can be truncated is empty.
async fn size_at_rest(database: &Postgres) -> Result<f64> {
    // Rotation skips a partition that another session is reading, so it is retried.
    let mut attempts_without_progress = 0;
    while attempts_without_progress < 10 {
        attempts_without_progress = if database.rotate().await? == 0 { attempts_without_progress + 1 } else { 0 };
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let bytes: i64 = sqlx::query_scalar(
        "SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class
         WHERE relkind = 'r' AND relname ~ '^landfall_(outbox|lease)'",
    )
    .fetch_one(database.pool())
    .await?;
    Ok(bytes as f64 / f64::from(1 << 20))
}

fn median(speeds: &[f64]) -> f64 {
    let mut sorted = speeds.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
