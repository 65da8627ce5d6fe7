//! Operators' actions on failed messages: retry now, or park. No lease is compared. No relay works on a failed row
//! until it is due; if one does, the session that locks the row first settles it.

use async_trait::async_trait;
use landfall_core::{Database, ErrorCode, OutboxControl, OutboxWriter, Result, RowId};
use sqlx::MySqlConnection;

use crate::connection::retry::retry_deadlocks;
use crate::outbox::settle::Parking;
use crate::statements::ByRows;
use crate::{MySql, row};

#[async_trait]
impl OutboxControl for MySql {
    async fn retry(&self, rows: &[RowId], actor: &str) -> Result<Vec<RowId>> {
        let doing = "make messages due";
        let actor = row::actor(actor);
        let changed = retry_deadlocks(|| async {
            let mut transaction = self.begin().await?;
            let waiting = self.lock(&mut transaction, &self.statements().lock_waiting_rows, rows).await?;
            self.run(&mut transaction, &self.statements().make_due, &waiting, doing).await?;
            let audit = &self.statements().audit_rows;
            self.run_with(&mut transaction, audit, &waiting, doing, |query| query.bind(actor.clone()).bind("retry"))
                .await?;
            self.commit(transaction).await?;
            Ok(waiting)
        })
        .await?;
        if !changed.is_empty() {
            self.wake();
        }
        Ok(changed)
    }

    async fn park(&self, rows: &[RowId], reason: &str, actor: &str) -> Result<Vec<RowId>> {
        let actor = row::actor(actor);
        retry_deadlocks(|| async {
            let mut transaction = self.begin().await?;
            let failed = self.lock(&mut transaction, &self.statements().lock_failed_rows, rows).await?;
            for id in &failed {
                let code = &ErrorCode::PARKED_BY_HAND;
                let parking = Parking { code, error: reason, new_attempts: 0, holds_key: true, actor: &actor };
                self.park_row(&mut transaction, *id, parking).await?;
            }
            self.commit(transaction).await?;
            Ok(failed)
        })
        .await
    }

    async fn record_action(&self, actor: &str, action: &str, detail: &str) -> Result<()> {
        let mut transaction = self.begin().await?;
        sqlx::query(self.statements().audit_action.text())
            .bind(row::actor(actor))
            .bind(action)
            .bind(uuid::Uuid::nil())
            .bind(row::storable(detail))
            .execute(&mut *transaction)
            .await
            .map_err(self.could_not("write the audit trail"))?;
        self.commit(transaction).await
    }
}

impl MySql {
    async fn lock(&self, connection: &mut MySqlConnection, statement: &ByRows, rows: &[RowId]) -> Result<Vec<RowId>> {
        let mut locked = Vec::new();
        for chunk in rows.chunks(ByRows::MOST) {
            let (text, bound) = statement.fit(chunk);
            let query = bound.fold(sqlx::query_scalar(text), |query, id| query.bind(id));
            let found: Vec<RowId> =
                query.fetch_all(&mut *connection).await.map_err(self.could_not("lock messages of the outbox"))?;
            locked.extend(found);
        }
        Ok(locked)
    }
}
