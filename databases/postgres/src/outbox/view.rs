//! The outbox as operators see it.

use async_trait::async_trait;
use landfall_core::{MessageId, OutboxDetail, OutboxFilter, OutboxRow, OutboxState, OutboxStats, OutboxView, Result};
use landfall_sql_toolkit::{OutboxColumns, push_outbox_filter};
use sqlx::{QueryBuilder, Row};

use crate::{Postgres, row};

const UNSENT: [OutboxState; 3] = [OutboxState::Pending, OutboxState::Waiting, OutboxState::Retrying];
const COLUMNS: OutboxColumns = OutboxColumns { id: "id", message_id: "message_id", topic: "topic", key: "key" };

#[async_trait]
impl OutboxView for Postgres {
    async fn stats(&self) -> Result<OutboxStats> {
        let doing = "count the outbox";
        let row = self.row(doing, self.query(&self.statements().outbox_stats)).await?;
        let count = |name: &str| row.try_get::<i64, _>(name).map(|count| count as u64).map_err(self.could_not(doing));
        Ok(OutboxStats {
            pending: count("pending")?,
            oldest_seconds: row.try_get("oldest_seconds").map_err(self.could_not(doing))?,
            retrying: count("retrying")?,
            parked: count("parked")?,
            published: count("published")?,
        })
    }

    async fn list(&self, filter: &OutboxFilter, limit: usize) -> Result<Vec<OutboxRow>> {
        let states: Vec<&str> = match filter.state {
            Some(state) => vec![state.as_str()],
            None => UNSENT.iter().map(|state| state.as_str()).collect(),
        };
        let mut query = QueryBuilder::new(self.statements().outbox_list.as_str());
        query.push(" AND state = ANY (").push_bind(states).push(")");
        push_outbox_filter(&mut query, filter, COLUMNS, |id| id.as_uuid());
        query.push(" ORDER BY id LIMIT ").push_bind(i64::try_from(limit).unwrap_or(i64::MAX));
        let rows = self.rows("list the outbox", query.build().persistent(self.may_prepare())).await?;
        rows.iter().map(row::outbox_row).collect()
    }

    async fn show(&self, message_id: MessageId) -> Result<Vec<OutboxDetail>> {
        let query = self.query(&self.statements().outbox_show).bind(message_id.as_uuid());
        let rows = self.rows("show a message of the outbox", query).await?;
        rows.iter().map(row::outbox_detail).collect()
    }
}
