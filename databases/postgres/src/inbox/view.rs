//! Queries of the inbox outside a transaction.

use landfall_core::{GroupName, InboxView, MessageId, Result};
use uuid::Uuid;

use crate::Postgres;

impl InboxView for Postgres {
    async fn handled(&self, group: &GroupName, ids: &[MessageId]) -> Result<Vec<MessageId>> {
        let ids: Vec<_> = ids.iter().map(|id| id.as_uuid()).collect();
        let query = self.query_scalar(&self.statements().handled).bind(group.as_str()).bind(ids);
        let found: Vec<Uuid> = self.values("read the inbox", query).await?;
        Ok(found.into_iter().map(MessageId::from).collect())
    }
}
