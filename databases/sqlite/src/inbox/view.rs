//! Queries of the inbox outside a transaction.

use landfall_core::{GroupName, InboxView, MessageId, Result};

use crate::Sqlite;

impl InboxView for Sqlite {
    async fn handled(&self, group: &GroupName, ids: &[MessageId]) -> Result<Vec<MessageId>> {
        let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        let found: Vec<String> = sqlx::query_scalar(self.statements().handled.text())
            .bind(group.as_str())
            .bind(serde_json::Value::from(ids).to_string())
            .fetch_all(&self.inner.pool)
            .await
            .map_err(self.cannot("read the inbox"))?;
        found.iter().map(|id| id.parse()).collect()
    }
}
