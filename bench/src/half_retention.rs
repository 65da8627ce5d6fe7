//! The longest wait of a sender of half messages while partitions of expired days are dropped and new ones created,
//! compared with the same senders without housekeeping.
//!
//! In production one day expires a day. Here several expire one after the other in each sample.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use landfall::half::{HalfCoordinator, StoredCoordinator};
use landfall::housekeeping::Expiring;
use landfall::postgres::Postgres;
use landfall::{HalfVerdict, Housekeeping};
use sqlx::{AssertSqlSafe, Executor};
use tokio::task::JoinSet;

use crate::Result;
use crate::bare::Bare;
use crate::contest::{self, Contestant, Sample, ensure_equal};
use crate::half_message::half;
use crate::table::{Row, longest_rows};

const SENDERS: usize = 4;
/// Days that expire in each sample, and the decided half messages of each.
const DAYS: u32 = 6;
const ROWS_PER_DAY: u64 = 10_000;
const RETENTION: Duration = Duration::from_secs(7 * 24 * 3600);
const AT_MOST: u64 = 500;
/// Housekeeping pauses for a minute in production.
const ROUND: Duration = Duration::from_millis(20);
/// A shorter run has too few commits for a meaningful maximum.
const MIN_TOTAL: Duration = Duration::from_secs(21);
const STUCK_AFTER: Duration = Duration::from_secs(60);

pub(crate) async fn measure(database: &Postgres, total: Duration) -> Result<Vec<Row>> {
    let name = format!("half message while days are dropped, {SENDERS} senders");
    let mut contestants: [Box<dyn Contestant>; 2] =
        [Box::new(Senders { database, days: DAYS }), Box::new(Senders { database, days: 0 })];
    let samples = contest::compare(&name, total.max(MIN_TOTAL), &mut contestants).await?;
    Ok(longest_rows(&name, &["without housekeeping"], &samples))
}

struct Senders<'a> {
    database: &'a Postgres,
    /// How many days expire; 0 without housekeeping.
    days: u32,
}

#[async_trait]
impl Contestant for Senders<'_> {
    async fn sample(&mut self, length: Duration) -> Result<Sample> {
        // The first day expires after the first part of the sample, and the last one before its end.
        let pause = length / (self.days + 2);
        for day in 0..self.days {
            fill(self.database, day, pause * (day + 1)).await?;
        }
        drop_days_ahead(self.database).await?;
        let mut senders = JoinSet::new();
        for _ in 0..SENDERS {
            senders.spawn(send(self.database.clone(), length));
        }
        let started = Instant::now();
        let mut removed = 0;
        while removed < u64::from(self.days) * ROWS_PER_DAY {
            removed += self.database.remove_expired(Expiring::HalfMessages, RETENTION, AT_MOST).await?;
            if started.elapsed() > length + STUCK_AFTER {
                return Err(format!("only {removed} expired half messages were removed").into());
            }
            tokio::time::sleep(ROUND).await;
        }
        let mut latencies = Vec::new();
        while let Some(sent) = senders.join_next().await {
            latencies.extend(sent??);
        }
        ensure_equal("partitions of expired days", old_days(self.database).await?, 0)?;
        self.database.clear().await?;
        self.database.pool().execute("TRUNCATE landfall_half_message, landfall_audit").await?;
        Ok(Sample::Latencies(latencies))
    }
}

/// Prepares and commits in a loop. Returns the time of each, both calls together.
async fn send(database: Postgres, length: Duration) -> Result<Vec<Duration>> {
    let coordinator = StoredCoordinator::new(Arc::new(database));
    let (started, mut latencies) = (Instant::now(), Vec::new());
    while started.elapsed() < length {
        let half = half()?;
        let begun = Instant::now();
        coordinator.prepare(&half).await?;
        coordinator.decide(half.message.id, HalfVerdict::Committed).await?;
        latencies.push(begun.elapsed());
    }
    Ok(latencies)
}

/// Creates the partition of an old day. Its rows were decided long ago, and expire after `expires_in`.
async fn fill(database: &Postgres, day: u32, expires_in: Duration) -> Result<()> {
    let (from, to) = (day + 1, day + 2);
    let create = format!(
        "CREATE TABLE landfall_half_message_202101{from:02} PARTITION OF landfall_half_message
         FOR VALUES FROM ('2021-01-{from:02}') TO ('2021-01-{to:02}')"
    );
    sqlx::query(AssertSqlSafe(create)).execute(database.pool()).await?;
    let age = RETENTION.as_secs_f64() - expires_in.as_secs_f64();
    let rows = format!(
        "INSERT INTO landfall_half_message (id, day, state, fingerprint, topic, key, kind, mode, headers, created_at,
             business_type, business_id, check_after_ms, decided_at, decided_by, payload)
         SELECT gen_random_uuid(), '2021-01-{from:02}', 'committed', '\\x00', 'orders', 'order-' || n, 'message',
             'effectively-once', '{{}}', now(), 'order', n::text, 0, now() - make_interval(secs => $2), 'sender',
             convert_to(repeat('x', 256), 'UTF8')
         FROM generate_series(1, $1) n"
    );
    sqlx::query(AssertSqlSafe(rows)).bind(ROWS_PER_DAY.cast_signed()).bind(age).execute(database.pool()).await?;
    Ok(())
}

/// Drops the empty partitions of the next days, so that housekeeping creates them beside the senders.
async fn drop_days_ahead(database: &Postgres) -> Result<()> {
    let names: Vec<String> = sqlx::query_scalar(
        "SELECT relname::text FROM pg_class WHERE relname ~ '^landfall_half_message_[0-9]{8}$'
             AND right(relname, 8) > to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')",
    )
    .fetch_all(database.pool())
    .await?;
    for name in names {
        sqlx::query(AssertSqlSafe(format!("DROP TABLE {name}"))).execute(database.pool()).await?;
    }
    Ok(())
}

async fn old_days(database: &Postgres) -> Result<u64> {
    let count: i64 =
        sqlx::query_scalar("SELECT count(*) FROM pg_class WHERE relname LIKE 'landfall_half_message_2021____'")
            .fetch_one(database.pool())
            .await?;
    Ok(count.unsigned_abs())
}
