//! Retention: removes expired rows, a limited number per call.

use std::time::Duration;

use async_trait::async_trait;
use landfall_core::{Expiring, HalfMessageDetail, Housekeeping, MessageId, OutboxDetail, Result, RowId};
use landfall_sql_toolkit::half_message_detail;

use crate::statements::Sql;
use crate::{Postgres, row};

#[async_trait]
impl Housekeeping for Postgres {
    async fn remove_expired(&self, what: Expiring, age: Duration, at_most: u64) -> Result<u64> {
        let sql = self.statements();
        let statement = match what {
            Expiring::Sent => return self.remove_sent(age, at_most).await,
            Expiring::HandledIds => &sql.forget_handled,
            Expiring::EnqueuedIds => &sql.remove_enqueued_ids,
            Expiring::Retries => &sql.remove_retries,
            Expiring::DoneLetters => &sql.remove_done_letters,
            Expiring::Sequences => &sql.forget_sequences,
            Expiring::IdempotencyAnswers => &sql.remove_answers,
            Expiring::IdempotencyRecords => &sql.remove_records,
            Expiring::HalfMessages => return self.remove_half_messages(age, at_most).await,
            Expiring::Barriers => {
                let query = self.query_scalar(&sql.remove_barriers).bind(seconds(age)).bind(limit(at_most));
                let removed: i64 = self.value("remove barrier rows", query).await?;
                return Ok(removed.unsigned_abs());
            }
        };
        self.delete(statement, age, at_most).await
    }

    async fn old_sent(&self, age: Duration, at_most: u64) -> Result<Vec<OutboxDetail>> {
        let query = self.query(&self.statements().old_sent).bind(seconds(age)).bind(limit(at_most));
        self.rows("read sent messages", query).await?.iter().map(row::outbox_detail).collect()
    }

    async fn remove_these_sent(&self, rows: &[RowId]) -> Result<u64> {
        let query = self.query_scalar(&self.statements().remove_these_sent).bind(rows);
        let removed: i64 = self.value("remove sent messages", query).await?;
        Ok(removed as u64)
    }

    async fn old_half_messages(&self, age: Duration, at_most: u64) -> Result<Vec<HalfMessageDetail>> {
        let query = self.query(&self.statements().half_old).bind(seconds(age)).bind(limit(at_most));
        self.rows("read half messages", query).await?.iter().map(half_message_detail).collect()
    }

    async fn remove_these_half_messages(&self, ids: &[MessageId]) -> Result<u64> {
        let ids: Vec<_> = ids.iter().map(|id| id.as_uuid()).collect();
        let query = self.query_scalar(&self.statements().remove_these_half).bind(ids);
        let removed: i64 = self.value("remove half messages", query).await?;
        Ok(removed.unsigned_abs())
    }
}

/// Days for which partitions of half messages are created ahead.
const DAYS_AHEAD: i32 = 3;
/// A younger retention deletes rows; an older one drops whole days.
const ONE_DAY: Duration = Duration::from_secs(24 * 3600);

impl Postgres {
    /// Creates the partitions of the next days, and drops those of past days in which everything has expired or was
    /// removed. Deletes what is left in steps. Each is a transaction of its own, so that no lock on the table is kept.
    async fn remove_half_messages(&self, age: Duration, at_most: u64) -> Result<u64> {
        let sql = self.statements();
        self.row("create partitions", self.query(&sql.half_days).bind(DAYS_AHEAD)).await?;
        let mut removed = 0;
        if age >= ONE_DAY {
            let days: Vec<String> =
                self.values("find partitions", self.query_scalar(&sql.half_old_days).bind(seconds(ONE_DAY))).await?;
            for day in days {
                let drop = self.query_scalar(&sql.half_drop_day).bind(day).bind(seconds(age));
                let rows: i64 = self.value("drop a partition", drop).await?;
                removed += rows.unsigned_abs();
            }
        }
        let rest = at_most.saturating_sub(removed);
        let delete = self.query_scalar(&sql.remove_half_messages).bind(seconds(age)).bind(limit(rest));
        let deleted: i64 = self.value("remove half messages", delete).await?;
        Ok(removed + deleted.unsigned_abs())
    }

    /// Removes sent messages from the archive and, if sent messages are kept, those still in their partition. Otherwise
    /// the relay truncates the partition soon, which costs less than a look at every row.
    async fn remove_sent(&self, age: Duration, at_most: u64) -> Result<u64> {
        let sql = self.statements();
        let mut removed = 0;
        let steps = [Some(&sql.remove_sent), self.inner.keep_sent.map(|_| &sql.hide_sent)];
        for statement in steps.into_iter().flatten() {
            let query = self.query_scalar(statement).bind(seconds(age)).bind(limit(at_most.saturating_sub(removed)));
            let step: i64 = self.value("remove sent messages", query).await?;
            removed += step as u64;
        }
        Ok(removed)
    }

    async fn delete(&self, statement: &Sql, age: Duration, at_most: u64) -> Result<u64> {
        let doing = "remove expired rows";
        let mut session = self.session().await?;
        let deleted = self
            .query(statement)
            .bind(seconds(age))
            .bind(limit(at_most))
            .execute(session.connection())
            .await
            .map_err(self.could_not(doing))?;
        session.finish().await.map_err(self.could_not(doing))?;
        Ok(deleted.rows_affected())
    }
}

fn limit(at_most: u64) -> i64 {
    i64::try_from(at_most).unwrap_or(i64::MAX)
}

/// Converts an age to seconds. No timestamp is older than a thousand years, so longer ages are cut to that.
pub(crate) fn seconds(age: Duration) -> f64 {
    age.min(Duration::from_secs(1000 * 365 * 24 * 3600)).as_secs_f64()
}
