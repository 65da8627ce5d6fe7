//! Retention: removes expired rows, a limited number per call.

use std::time::Duration;

use async_trait::async_trait;
use landfall_core::{Expiring, Housekeeping, OutboxDetail, Result, RowId};

use crate::statements::Sql;
use crate::{Postgres, row};

#[async_trait]
impl Housekeeping for Postgres {
    async fn remove_expired(&self, what: Expiring, age: Duration, at_most: u64) -> Result<u64> {
        let sql = self.statements();
        let statement = match what {
            // A function, which also empties partitions.
            Expiring::Sent => {
                let query = self.query_scalar(&sql.remove_sent).bind(seconds(age)).bind(limit(at_most));
                let removed: i64 = self.value("remove sent messages", query).await?;
                return Ok(removed as u64);
            }
            Expiring::HandledIds => &sql.forget_handled,
            Expiring::EnqueuedIds => &sql.remove_enqueued_ids,
            Expiring::Retries => &sql.remove_retries,
            Expiring::DoneLetters => &sql.remove_done_letters,
            Expiring::Sequences => &sql.forget_sequences,
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
}

impl Postgres {
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
