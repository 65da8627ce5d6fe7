//! Operators' actions on failed messages: retry now, or park. Both write the audit trail in the same transaction.

use async_trait::async_trait;
use landfall_core::{Database, ErrorCode, OutboxControl, OutboxWriter, Result, RowId};

use super::settle::{Parker, Parking};
use crate::Sqlite;
use crate::dead_letter::id_list;

#[async_trait]
impl OutboxControl for Sqlite {
    async fn retry(&self, rows: &[RowId], actor: &str) -> Result<Vec<RowId>> {
        let mut transaction = self.begin().await?;
        let mut due: Vec<RowId> = sqlx::query_scalar(self.statements().retry_now.text())
            .bind(id_list(rows))
            .fetch_all(&mut *transaction)
            .await
            .map_err(self.cannot("make messages due"))?;
        if due.is_empty() {
            return Ok(due);
        }
        due.sort_unstable();
        sqlx::query(self.statements().record_row.text())
            .bind(id_list(&due))
            .bind(actor)
            .bind("retry")
            .bind("")
            .execute(&mut *transaction)
            .await
            .map_err(self.cannot("write the audit trail"))?;
        self.commit(transaction).await?;
        self.wake();
        Ok(due)
    }

    async fn park(&self, rows: &[RowId], reason: &str, actor: &str) -> Result<Vec<RowId>> {
        let mut sorted = rows.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let mut transaction = self.begin().await?;
        let mut parked = Vec::new();
        for row in sorted {
            let parking = Parking {
                code: &ErrorCode::PARKED_BY_HAND,
                error: reason,
                holds_key: true,
                by: Parker::Operator(actor),
            };
            if self.park_row(&mut transaction, row, parking).await? {
                parked.push(row);
            }
        }
        self.commit(transaction).await?;
        Ok(parked)
    }

    async fn record_action(&self, actor: &str, action: &str, detail: &str) -> Result<()> {
        let mut transaction = self.begin().await?;
        sqlx::query(self.statements().record_action.text())
            .bind(actor)
            .bind(action)
            .bind(uuid::Uuid::nil().to_string())
            .bind(detail)
            .execute(&mut *transaction)
            .await
            .map_err(self.cannot("write the audit trail"))?;
        self.commit(transaction).await
    }
}
