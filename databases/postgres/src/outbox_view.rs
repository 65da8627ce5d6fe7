//! The outbox as people look at it.

use async_trait::async_trait;
use landfall_core::{
    Error, ErrorKind, MessageId, OutboxDetail, OutboxFilter, OutboxRow, OutboxStats, OutboxView, Result, RowId,
};

use crate::{Postgres, row};

#[async_trait]
impl OutboxView for Postgres {
    async fn stats(&self) -> Result<OutboxStats> {
        let (pending, retrying, oldest_seconds, parked, published): (i64, i64, f64, i64, i64) =
            sqlx::query_as(self.statements().outbox_stats.text())
                .fetch_one(self.pool())
                .await
                .map_err(self.could_not("count the outbox"))?;
        Ok(OutboxStats {
            pending: pending as u64,
            oldest_seconds,
            retrying: retrying as u64,
            parked: parked as u64,
            published: published as u64,
        })
    }

    async fn list(&self, filter: &OutboxFilter, limit: usize) -> Result<Vec<OutboxRow>> {
        let rows = sqlx::query(self.statements().outbox_list.text())
            .bind(filter.after.unwrap_or(RowId::MIN))
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_all(self.pool())
            .await
            .map_err(self.could_not("list the outbox"))?;
        rows.iter().map(row::outbox_row).collect()
    }

    async fn show(&self, _: MessageId) -> Result<Vec<OutboxDetail>> {
        Err(Error::new(ErrorKind::Unsupported, "not yet"))
    }
}
