//! The outbox as people look at it.

use async_trait::async_trait;
use landfall_core::{MessageId, OutboxDetail, OutboxFilter, OutboxRow, OutboxState, OutboxStats, OutboxView, Result};
use sqlx::QueryBuilder;

use crate::{Postgres, row};

/// What is still to be sent.
const UNSENT: [OutboxState; 3] = [OutboxState::Pending, OutboxState::Waiting, OutboxState::Retrying];

#[async_trait]
impl OutboxView for Postgres {
    async fn stats(&self) -> Result<OutboxStats> {
        let doing = "count the outbox";
        let mut session = self.session().await?;
        let (pending, retrying, oldest_seconds, parked, published): (i64, i64, f64, i64, i64) = self
            .query_as(&self.statements().outbox_stats)
            .fetch_one(session.connection())
            .await
            .map_err(self.could_not(doing))?;
        session.finish().await.map_err(self.could_not(doing))?;
        Ok(OutboxStats {
            pending: pending as u64,
            oldest_seconds,
            retrying: retrying as u64,
            parked: parked as u64,
            published: published as u64,
        })
    }

    async fn list(&self, filter: &OutboxFilter, limit: usize) -> Result<Vec<OutboxRow>> {
        let doing = "list the outbox";
        let OutboxFilter { state, message_id, topic, key, after } = filter;
        let states: Vec<&str> = match state {
            Some(state) => vec![state.as_str()],
            None => UNSENT.iter().map(|state| state.as_str()).collect(),
        };
        let mut query = QueryBuilder::new(self.statements().outbox_list.as_str());
        query.push(" AND state = ANY (").push_bind(states).push(")");
        if let Some(message_id) = message_id {
            query.push(" AND message_id = ").push_bind(message_id.as_uuid());
        }
        if let Some(topic) = topic {
            query.push(" AND topic = ").push_bind(topic.as_str().to_owned());
        }
        if let Some(key) = key {
            query.push(" AND key = ").push_bind(key.as_str().to_owned());
        }
        if let Some(after) = after {
            query.push(" AND id > ").push_bind(*after);
        }
        query.push(" ORDER BY id LIMIT ").push_bind(i64::try_from(limit).unwrap_or(i64::MAX));
        let mut session = self.session().await?;
        let rows = query.build().persistent(self.may_prepare()).fetch_all(session.connection()).await;
        let rows = rows.map_err(self.could_not(doing))?;
        session.finish().await.map_err(self.could_not(doing))?;
        rows.iter().map(row::outbox_row).collect()
    }

    async fn show(&self, message_id: MessageId) -> Result<Vec<OutboxDetail>> {
        let doing = "show a message of the outbox";
        let mut session = self.session().await?;
        let rows = self
            .query(&self.statements().outbox_show)
            .bind(message_id.as_uuid())
            .fetch_all(session.connection())
            .await
            .map_err(self.could_not(doing))?;
        session.finish().await.map_err(self.could_not(doing))?;
        rows.iter().map(row::outbox_detail).collect()
    }
}
