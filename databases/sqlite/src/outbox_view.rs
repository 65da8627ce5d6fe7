//! What people ask the outbox.

use async_trait::async_trait;
use landfall_core::{
    Error, ErrorKind, MessageId, OutboxDetail, OutboxFilter, OutboxRow, OutboxStats, OutboxView, Result, RowId,
};
use sqlx::Row;

use crate::{Sqlite, row};

#[async_trait]
impl OutboxView for Sqlite {
    async fn stats(&self) -> Result<OutboxStats> {
        // One statement sees one state of the database: no message is counted twice or missed.
        let row = sqlx::query(self.statements().outbox_stats.clone())
            .fetch_one(&self.inner.pool)
            .await
            .map_err(self.cannot("count the outbox"))?;
        let count = |name: &str| row.try_get::<i64, _>(name).map(i64::unsigned_abs);
        let stats = || -> Result<OutboxStats, sqlx::Error> {
            Ok(OutboxStats {
                pending: count("pending")?,
                oldest_seconds: row.try_get("oldest_seconds")?,
                retrying: count("retrying")?,
                parked: count("parked")?,
                published: count("published")?,
            })
        };
        stats().map_err(self.cannot("count the outbox"))
    }

    async fn list(&self, filter: &OutboxFilter, limit: usize) -> Result<Vec<OutboxRow>> {
        let rows = sqlx::query(self.statements().outbox_list.clone())
            .bind(filter.after.unwrap_or(RowId::MIN))
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_all(&self.inner.pool)
            .await
            .map_err(self.cannot("list the outbox"))?;
        rows.iter().map(row::outbox_row).collect()
    }

    async fn show(&self, _: MessageId) -> Result<Vec<OutboxDetail>> {
        Err(Error::new(ErrorKind::Unsupported, "not yet"))
    }
}
