//! Operators' actions on failed messages: retry now, or park.

use async_trait::async_trait;
use landfall_core::{ErrorCode, OutboxControl, OutboxWriter, Result, RowId};

use crate::{Postgres, row};

#[async_trait]
impl OutboxControl for Postgres {
    async fn retry(&self, rows: &[RowId], actor: &str) -> Result<Vec<RowId>> {
        let query = self.query_scalar(&self.statements().retry_by_hand).bind(rows).bind(row::storable(actor));
        let changed: Vec<RowId> = self.values("retry messages of the outbox", query).await?;
        if !changed.is_empty() {
            self.wake();
        }
        Ok(changed)
    }

    /// Only a waiting message can be parked by hand, so the relay's windows stay as they are. If the relay is sending
    /// the message at this moment, its settlement finds no row.
    async fn park(&self, rows: &[RowId], reason: &str, actor: &str) -> Result<Vec<RowId>> {
        let query = self
            .query_scalar(&self.statements().park_by_hand)
            .bind(rows)
            .bind(ErrorCode::PARKED_BY_HAND.as_str())
            .bind(row::storable(reason))
            .bind(row::storable(actor));
        self.values("park messages of the outbox", query).await
    }

    async fn record_action(&self, actor: &str, action: &str, detail: &str) -> Result<()> {
        let query = self
            .query_scalar(&self.statements().record_action)
            .bind(row::storable(actor))
            .bind(action)
            .bind(uuid::Uuid::nil())
            .bind(row::storable(detail));
        let _ids: Vec<i64> = self.values("write the audit trail", query).await?;
        Ok(())
    }
}
