//! What the inbox has.

use landfall_core::{GroupName, InboxView, MessageId, Result};
use uuid::Uuid;

use crate::Postgres;

impl InboxView for Postgres {
    async fn handled(&self, group: &GroupName, ids: &[MessageId]) -> Result<Vec<MessageId>> {
        let doing = "look into the inbox";
        let mut session = self.session().await?;
        let ids: Vec<_> = ids.iter().map(|id| id.as_uuid()).collect();
        let found: Vec<Uuid> = self
            .query_scalar(&self.statements().handled)
            .bind(group.as_str())
            .bind(ids)
            .fetch_all(session.connection())
            .await
            .map_err(self.could_not(doing))?;
        session.finish().await.map_err(self.could_not(doing))?;
        Ok(found.into_iter().map(MessageId::from).collect())
    }
}
