//! After a restore into another cluster, the stored transaction ids have no meaning in it.

use landfall_core::{Database, Result};

use crate::Postgres;

impl Postgres {
    /// Rewrites the transaction ids of unsent rows if the tables come from another cluster. Called whenever shards are
    /// taken over.
    pub(crate) async fn adopt_restored_tables(&self) -> Result<()> {
        let doing = "compare the outbox's cluster";
        let is_foreign: bool = self.value(doing, self.query_scalar(&self.statements().is_foreign)).await?;
        if is_foreign {
            tracing::warn!("outbox restored from another cluster, rewriting its unsent rows");
            let mut transaction = self.begin().await?;
            let rewritten = self.query(&self.statements().rewrite_foreign).execute(&mut *transaction).await;
            rewritten.map_err(self.could_not("rewrite the outbox of another cluster"))?;
            self.commit(transaction).await?;
        }
        Ok(())
    }
}
