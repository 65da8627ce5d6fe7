//! After a restore into another cluster, whose transaction ids have nothing to do with those in the tables.

use landfall_core::{Database, Result};

use crate::Postgres;

impl Postgres {
    /// Asked whenever shards are taken over: the tables are made to fit the cluster they are in now, if it is another.
    pub(crate) async fn feel_at_home(&self) -> Result<()> {
        let doing = "see which cluster the outbox is in";
        let mut session = self.session().await?;
        let foreign = self.query_scalar(&self.statements().is_foreign).fetch_one(session.connection()).await;
        let foreign: bool = foreign.map_err(self.could_not(doing))?;
        session.finish().await.map_err(self.could_not(doing))?;
        if foreign {
            tracing::warn!("the outbox was restored from another cluster; what it has not sent is written anew");
            let mut transaction = self.begin().await?;
            let rebased = self.query(&self.statements().rebase).execute(&mut *transaction).await;
            rebased.map_err(self.could_not("bring the outbox into another cluster"))?;
            self.commit(transaction).await?;
        }
        Ok(())
    }
}
