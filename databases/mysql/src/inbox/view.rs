//! Queries of the inbox outside a transaction.

use landfall_core::{GroupName, InboxView, MessageId, Result};

use crate::MySql;
use crate::statements::ByPairs;

impl InboxView for MySql {
    async fn handled(&self, group: &GroupName, ids: &[MessageId]) -> Result<Vec<MessageId>> {
        let mut connection = self.pool().acquire().await.map_err(self.could_not("open a connection"))?;
        let mut found = Vec::new();
        for chunk in ids.chunks(ByPairs::MOST) {
            found.extend(self.handled_among(&mut connection, group, chunk).await?);
        }
        if !found.is_empty() {
            self.flush_on(&mut connection).await?;
        }
        Ok(found)
    }
}
