//! The outbox as operators see it.

use async_trait::async_trait;
use landfall_core::{MessageId, OutboxDetail, OutboxFilter, OutboxRow, OutboxState, OutboxStats, OutboxView, Result};
use landfall_sql_toolkit::{OutboxColumns, push_outbox_filter};
use sqlx::{QueryBuilder, Row};

use crate::{Sqlite, row};

/// A foreign writer may have written an id with capital letters.
const COLUMNS: OutboxColumns = OutboxColumns { id: "id", message_id: "lower(message_id)", topic: "topic", key: "key" };

#[async_trait]
impl OutboxView for Sqlite {
    async fn stats(&self) -> Result<OutboxStats> {
        // One statement sees one state of the database: no message is counted twice or missed.
        let row = sqlx::query(self.statements().outbox_stats.text())
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
        let mut query = self.filtered(filter);
        query.push(" ORDER BY id LIMIT ").push_bind(i64::try_from(limit).unwrap_or(i64::MAX));
        let rows = query
            .build()
            .persistent(false)
            .fetch_all(&self.inner.pool)
            .await
            .map_err(self.cannot("list the outbox"))?;
        rows.iter().map(row::outbox_row).collect()
    }

    async fn show(&self, message_id: MessageId) -> Result<Vec<OutboxDetail>> {
        let rows = sqlx::query(self.statements().outbox_show.text())
            .bind(message_id.to_string())
            .fetch_all(&self.inner.pool)
            .await
            .map_err(self.cannot("show a message of the outbox"))?;
        let mut found = rows.iter().map(row::outbox_detail).collect::<Result<Vec<_>>>()?;
        found.sort_by_key(|detail| detail.row.row);
        Ok(found)
    }
}

impl Sqlite {
    /// Returns the statement for the filter's state, with a condition for every other field that is set.
    fn filtered(&self, filter: &OutboxFilter) -> QueryBuilder<sqlx::Sqlite> {
        let statements = self.statements();
        let select = match filter.state {
            None | Some(OutboxState::Pending | OutboxState::Waiting | OutboxState::Retrying) => &statements.outbox_open,
            Some(OutboxState::Parked) => &statements.outbox_parked,
            Some(OutboxState::Sent) => &statements.outbox_sent,
        };
        let mut query = QueryBuilder::new(select.as_str());
        if let Some(state) = filter.state {
            query.push(" AND state = ").push_bind(state.as_str());
        }
        push_outbox_filter(&mut query, filter, COLUMNS, |id| id.to_string());
        query
    }
}
