//! The outbox for relays without order: any number of them lock, publish and delete rows.

use async_trait::async_trait;
use landfall_core::adapter::{Claim, OutboxEntry, Settlement};
use landfall_core::{CompetingQueue, Database, Error, Result};
use sqlx::Connection;

use crate::connection::transaction::Transaction;
use crate::statements::SHARDS;
use crate::{MySql, row};

#[async_trait]
impl CompetingQueue for MySql {
    async fn claim(&self, limit: usize) -> Result<Box<dyn Claim>> {
        let doing = "claim messages of the outbox";
        if self.pool().options().get_max_connections() < 2 {
            return Err(Error::invalid(
                "a relay without order needs a pool of two connections: one of them holds its claim",
            ));
        }
        let mut transaction = self.begin().await?;
        let rows = sqlx::query(self.statements().claim.text())
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_all(&mut *transaction)
            .await
            .map_err(self.could_not(doing))?;
        let entries = row::entries(&rows).map_err(self.could_not(doing))?;
        if !entries.is_empty() {
            let mut second = self.pool().acquire().await.map_err(self.could_not("open a connection"))?;
            self.flush_on(&mut second).await?;
            // The claim's connection is alive, so the flush happened on the server that granted the claim.
            transaction.ping().await.map_err(self.could_not(doing))?;
        }
        let rows = entries.iter().map(|entry| entry.row).collect();
        Ok(Box::new(Claimed { database: self.clone(), transaction, rows, entries }))
    }
}

struct Claimed {
    database: MySql,
    transaction: Transaction,
    /// The rows that this transaction has locked.
    rows: Vec<i64>,
    entries: Vec<OutboxEntry>,
}

#[async_trait]
impl Claim for Claimed {
    fn take_entries(&mut self) -> Vec<OutboxEntry> {
        std::mem::take(&mut self.entries)
    }

    async fn settle(mut self: Box<Self>, settlements: &[Settlement]) -> Result<()> {
        let locked: Vec<&Settlement> =
            settlements.iter().filter(|settlement| self.rows.contains(&settlement.row)).collect();
        // Shards have no meaning here. A random one makes competing relays rarely wait for each other's count.
        self.database.apply_decisions(&mut self.transaction, &locked, rand::random_range(0..SHARDS)).await?;
        self.database.commit(self.transaction).await
    }
}
