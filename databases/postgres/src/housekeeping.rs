//! Retention: removes expired rows, a limited number per call.

use std::time::Duration;

use async_trait::async_trait;
use landfall_core::{Housekeeping, OutboxDetail, Result, RowId};

use crate::statements::Sql;
use crate::{Postgres, row};

#[async_trait]
impl Housekeeping for Postgres {
    async fn remove_sent(&self, age: Duration, at_most: u64) -> Result<u64> {
        let query = self.query_scalar(&self.statements().remove_sent).bind(seconds(age)).bind(limit(at_most));
        let removed: i64 = self.value("remove sent messages", query).await?;
        Ok(removed as u64)
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

    async fn forget_handled(&self, age: Duration, at_most: u64) -> Result<u64> {
        self.delete(&self.statements().forget_handled, age, at_most, "remove expired inbox rows").await
    }

    async fn remove_done_letters(&self, age: Duration, at_most: u64) -> Result<u64> {
        self.delete(&self.statements().remove_done_letters, age, at_most, "remove dead letters").await
    }

    async fn forget_sequences(&self, age: Duration, at_most: u64) -> Result<u64> {
        self.delete(&self.statements().forget_sequences, age, at_most, "remove expired sequences").await
    }
}

impl Postgres {
    async fn delete(&self, statement: &Sql, age: Duration, at_most: u64, doing: &'static str) -> Result<u64> {
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
