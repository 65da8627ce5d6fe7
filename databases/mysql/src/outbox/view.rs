//! The outbox as operators see it.

use async_trait::async_trait;
use landfall_core::{MessageId, OutboxDetail, OutboxFilter, OutboxRow, OutboxState, OutboxStats, OutboxView, Result};
use landfall_sql_toolkit::{OutboxColumns, push_outbox_filter};
use sqlx::QueryBuilder;

use crate::{MySql, row};

#[async_trait]
impl OutboxView for MySql {
    async fn stats(&self) -> Result<OutboxStats> {
        // One statement sees one state of the database: no message is counted twice or missed.
        let (pending, retrying, oldest_micros, parked, published): (i64, i64, i64, i64, i64) =
            sqlx::query_as(self.statements().outbox_stats.text())
                .fetch_one(self.pool())
                .await
                .map_err(self.could_not("count the outbox"))?;
        Ok(OutboxStats {
            pending: pending.unsigned_abs(),
            oldest_seconds: oldest_micros as f64 / 1e6,
            retrying: retrying.unsigned_abs(),
            parked: parked.unsigned_abs(),
            published: published.unsigned_abs(),
        })
    }

    async fn list(&self, filter: &OutboxFilter, limit: usize) -> Result<Vec<OutboxRow>> {
        let (statement, id) = match filter.state {
            Some(OutboxState::Parked) => (&self.statements().parked_rows, "o.outbox_id"),
            Some(OutboxState::Sent) => (&self.statements().sent_rows, "o.id"),
            _ => (&self.statements().outbox_rows, "o.id"),
        };
        let columns = OutboxColumns { id, message_id: "o.message_id", topic: "o.topic", key: "o.`key`" };
        let mut query = QueryBuilder::<sqlx::MySql>::new(statement.as_str());
        push_outbox_filter(&mut query, filter, columns, |id| id.as_uuid());
        match filter.state {
            Some(OutboxState::Retrying) => drop(query.push(" AND o.attempts > 0")),
            Some(OutboxState::Pending) => drop(query.push(" AND o.attempts = 0 HAVING state = 'pending'")),
            Some(OutboxState::Waiting) => drop(query.push(" AND o.attempts = 0 HAVING state = 'waiting'")),
            _ => {}
        }
        query.push(format!(" ORDER BY {id} LIMIT ")).push_bind(i64::try_from(limit).unwrap_or(i64::MAX));
        let rows =
            query.build().persistent(false).fetch_all(self.pool()).await.map_err(self.could_not("list the outbox"))?;
        rows.iter().map(row::outbox_row).collect()
    }

    async fn show(&self, message_id: MessageId) -> Result<Vec<OutboxDetail>> {
        let sql = self.statements();
        let mut details = Vec::new();
        for statement in [&sql.sent_details, &sql.parked_details, &sql.outbox_details] {
            let rows = sqlx::query(statement.text())
                .bind(message_id.as_uuid())
                .fetch_all(self.pool())
                .await
                .map_err(self.could_not("show a message of the outbox"))?;
            for row in &rows {
                details.push(row::outbox_detail(row)?);
            }
        }
        details.sort_by_key(|detail| detail.row.row);
        // A row that changed its state between two of the statements is shown in its last state.
        details.dedup_by(|later, earlier| later.row.row == earlier.row.row);
        Ok(details)
    }
}
