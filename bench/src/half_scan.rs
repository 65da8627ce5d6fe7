//! Check-backs beside a million undecided half messages that are not due: the scan reads only what is due.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use landfall::postgres::Postgres;
use landfall::{AfterCheck, HalfMessages};
use sqlx::Executor;

use crate::Result;
use crate::contest::{self, Contestant, Sample, ensure_equal};
use crate::table::{Row, rate_rows};

const UNDECIDED: i64 = 1_000_000;
const DUE: i64 = 2_000;
const BATCH: usize = 100;
const LEASE: Duration = Duration::from_secs(3600);

/// `$1` rows of today; the first check-back of each is due after `$2` seconds.
const FILL: &str = "
    INSERT INTO landfall_half_message
        (id, day, state, fingerprint, topic, key, kind, mode, headers, created_at, business_type, business_id,
         check_back, check_after_ms, next_check_at, payload)
    SELECT landfall_uuid7(), (now() AT TIME ZONE 'UTC')::date, 'prepared', '\\x00', 'orders', 'order-' || n, 'message',
        'effectively-once', '{}', now(), 'order', n::text, '{\"database\":\"shop\"}', 0,
        now() + make_interval(secs => $2), convert_to(repeat('x', 256), 'UTF8')
    FROM generate_series(1, $1) n";

/// Compares `full`, which gets a million rows, with `empty`. Both have Landfall's tables.
pub(crate) async fn measure(full: &Postgres, empty: &Postgres, total: Duration) -> Result<Vec<Row>> {
    fill(full, UNDECIDED, 24.0 * 3600.0).await?;
    for database in [full, empty] {
        database.pool().execute("VACUUM ANALYZE landfall_half_message").await?;
    }
    let name = "check-back scan beside 1,000,000 undecided half messages";
    let mut contestants: [Box<dyn Contestant>; 2] = [Box::new(Scan { on: full }), Box::new(Scan { on: empty })];
    let samples = contest::compare(name, total, &mut contestants).await?;
    full.pool().execute("TRUNCATE landfall_half_message").await?;
    Ok(rate_rows(name, "check-backs/s", &["no other half messages"], &samples))
}

async fn fill(database: &Postgres, rows: i64, due_in_seconds: f64) -> Result<()> {
    sqlx::query(FILL).bind(rows).bind(due_in_seconds).execute(database.pool()).await?;
    Ok(())
}

/// Claims what is due, and records an answer that does not decide.
struct Scan<'a> {
    on: &'a Postgres,
}

#[async_trait]
impl Contestant for Scan<'_> {
    async fn sample(&mut self, length: Duration) -> Result<Sample> {
        let (mut operations, mut elapsed) = (0, Duration::ZERO);
        while elapsed < length {
            fill(self.on, DUE, -1.0).await?;
            let started = Instant::now();
            let mut claimed = 0;
            loop {
                let due = self.on.claim_due(BATCH, LEASE).await?;
                if due.is_empty() {
                    break;
                }
                for one in &due {
                    let id = one.half.message.id;
                    self.on.record_check(id, one.checks, "unknown", AfterCheck::Again(LEASE)).await?;
                }
                claimed += due.len() as u64;
            }
            elapsed += started.elapsed();
            ensure_equal("check-backs that were due", claimed, DUE.unsigned_abs())?;
            operations += claimed;
            self.on.pool().execute("DELETE FROM landfall_half_message WHERE checks > 0").await?;
        }
        Ok(Sample::Rate { operations, elapsed })
    }
}
