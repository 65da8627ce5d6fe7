//! What people do to messages that failed: try again now, or give up.

use async_trait::async_trait;
use landfall_core::{ErrorCode, OutboxControl, OutboxWriter, Result, RowId};

use crate::{Postgres, row};

#[async_trait]
impl OutboxControl for Postgres {
    async fn retry(&self, rows: &[RowId], actor: &str) -> Result<Vec<RowId>> {
        let doing = "retry messages of the outbox";
        let mut session = self.session().await?;
        let changed: Vec<RowId> = self
            .query_scalar(&self.statements().retry_by_hand)
            .bind(rows)
            .bind(row::storable(actor))
            .fetch_all(session.connection())
            .await
            .map_err(self.could_not(doing))?;
        session.finish().await.map_err(self.could_not(doing))?;
        if !changed.is_empty() {
            self.wake();
        }
        Ok(changed)
    }

    /// Only a message that waits can be parked by hand, so the relay's windows are not touched: if it is sending this one
    /// right now, its settlement finds nothing.
    async fn park(&self, rows: &[RowId], reason: &str, actor: &str) -> Result<Vec<RowId>> {
        let doing = "park messages of the outbox";
        let mut session = self.session().await?;
        let changed: Vec<RowId> = self
            .query_scalar(&self.statements().park_by_hand)
            .bind(rows)
            .bind(ErrorCode::PARKED_BY_HAND.as_str())
            .bind(row::storable(reason))
            .bind(row::storable(actor))
            .fetch_all(session.connection())
            .await
            .map_err(self.could_not(doing))?;
        session.finish().await.map_err(self.could_not(doing))?;
        Ok(changed)
    }
}
