//! What nobody needs any more goes, a little at a time.

use std::time::Duration;

use async_trait::async_trait;
use landfall_core::{Housekeeping, OutboxDetail, Result, RowId};

use crate::statements::Sql;
use crate::{Postgres, row};

#[async_trait]
impl Housekeeping for Postgres {
    async fn remove_sent(&self, age: Duration, at_most: u64) -> Result<u64> {
        let doing = "remove sent messages";
        let mut session = self.session().await?;
        let removed: i64 = self
            .query_scalar(&self.statements().remove_sent)
            .bind(seconds(age))
            .bind(i64::try_from(at_most).unwrap_or(i64::MAX))
            .fetch_one(session.connection())
            .await
            .map_err(self.could_not(doing))?;
        session.finish().await.map_err(self.could_not(doing))?;
        Ok(removed as u64)
    }

    async fn old_sent(&self, age: Duration, at_most: u64) -> Result<Vec<OutboxDetail>> {
        let doing = "read sent messages";
        let mut session = self.session().await?;
        let rows = self
            .query(&self.statements().old_sent)
            .bind(seconds(age))
            .bind(i64::try_from(at_most).unwrap_or(i64::MAX))
            .fetch_all(session.connection())
            .await
            .map_err(self.could_not(doing))?;
        session.finish().await.map_err(self.could_not(doing))?;
        rows.iter().map(row::outbox_detail).collect()
    }

    async fn remove_these_sent(&self, rows: &[RowId]) -> Result<u64> {
        let doing = "remove sent messages";
        let mut session = self.session().await?;
        let removed: i64 = self
            .query_scalar(&self.statements().remove_these_sent)
            .bind(rows)
            .fetch_one(session.connection())
            .await
            .map_err(self.could_not(doing))?;
        session.finish().await.map_err(self.could_not(doing))?;
        Ok(removed as u64)
    }

    async fn forget_handled(&self, age: Duration, at_most: u64) -> Result<u64> {
        self.delete(&self.statements().forget_handled, age, at_most, "forget handled messages").await
    }

    async fn remove_done_letters(&self, age: Duration, at_most: u64) -> Result<u64> {
        self.delete(&self.statements().remove_done_letters, age, at_most, "remove dead letters").await
    }

    async fn forget_sequences(&self, age: Duration, at_most: u64) -> Result<u64> {
        self.delete(&self.statements().forget_sequences, age, at_most, "forget what was reached").await
    }
}

impl Postgres {
    async fn delete(&self, statement: &Sql, age: Duration, at_most: u64, doing: &'static str) -> Result<u64> {
        let mut session = self.session().await?;
        let deleted = self
            .query(statement)
            .bind(seconds(age))
            .bind(i64::try_from(at_most).unwrap_or(i64::MAX))
            .execute(session.connection())
            .await
            .map_err(self.could_not(doing))?;
        session.finish().await.map_err(self.could_not(doing))?;
        Ok(deleted.rows_affected())
    }
}

/// An age that no timestamp can be older than is as good as any longer one.
pub(crate) fn seconds(age: Duration) -> f64 {
    age.min(Duration::from_secs(1000 * 365 * 24 * 3600)).as_secs_f64()
}
