//! The outbox for relays.
//!
//! There is no cursor: the relay reads the rows that are present, so no row is skipped. Settling compares the lease's
//! holder and epoch under the write lock, so a relay that lost its lease changes nothing.

use std::time::Duration;

use async_trait::async_trait;
use landfall_core::adapter::{Decision, Lease, OutboxEntry, Settlement, Shard};
use landfall_core::{Database, Message, OutboxQueue, OutboxWriter, Result, RowId};
use sqlx::SqliteConnection;

use super::settle::{Parker, Parking};
use crate::Sqlite;
use crate::row::{self, SHARD};

#[async_trait]
impl OutboxQueue for Sqlite {
    async fn append(&self, messages: &[Message]) -> Result<()> {
        let mut transaction = self.begin().await?;
        self.enqueue(&mut transaction, messages).await?;
        self.commit(transaction).await?;
        self.wake();
        Ok(())
    }

    fn shards(&self) -> u16 {
        1
    }

    async fn next(&self, leases: &[Lease], limit: usize) -> Result<Vec<OutboxEntry>> {
        if !leases.iter().any(is_of_the_shard) {
            return Ok(Vec::new());
        }
        let rows = sqlx::query(self.statements().next.text())
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_all(&self.inner.pool)
            .await
            .map_err(self.cannot("read the outbox"))?;
        rows.iter().map(row::outbox_entry).collect::<Result<_, _>>().map_err(self.cannot("read the outbox"))
    }

    async fn settle(&self, leases: &[Lease], settlements: &[Settlement]) -> Result<Vec<RowId>> {
        let settlements: Vec<_> = settlements.iter().filter(|settlement| settlement.shard == SHARD).collect();
        if settlements.is_empty() {
            return Ok(Vec::new());
        }
        let mut transaction = self.begin().await?;
        if !self.is_any_held(&mut transaction, leases).await? {
            return Ok(Vec::new());
        }
        let mut changed = self.settle_published(&mut transaction, &settlements).await?;
        for settlement in &settlements {
            let is_changed = match &settlement.decision {
                Decision::Published => continue,
                Decision::Retry { after, error } => {
                    self.settle_retry(&mut transaction, settlement.row, *after, error).await?
                }
                Decision::Park { code, error, holds_key } => {
                    let parking = Parking { code, error, holds_key: *holds_key, by: Parker::Relay };
                    self.park_row(&mut transaction, settlement.row, parking).await?
                }
            };
            if is_changed {
                changed.insert(settlement.row);
            }
        }
        self.commit(transaction).await?;
        Ok(settlements.iter().map(|settlement| settlement.row).filter(|row| changed.contains(row)).collect())
    }

    async fn wait(&self, at_most: Duration) {
        self.inner.signals.wait(self, &self.seen, at_most).await;
    }
}

fn is_of_the_shard(lease: &Lease) -> bool {
    Shard::from_lease(&lease.name) == Some(SHARD)
}

impl Sqlite {
    /// Returns whether one of `leases` is for the shard and held under its epoch. An expired lease without a new holder
    /// counts: its epoch proves that no other relay settled anything.
    async fn is_any_held(&self, connection: &mut SqliteConnection, leases: &[Lease]) -> Result<bool> {
        for lease in leases.iter().filter(|lease| is_of_the_shard(lease)) {
            let is_held: bool = sqlx::query_scalar(self.statements().lease_is_held.text())
                .bind(&lease.name.0)
                .bind(&lease.holder.0)
                .bind(lease.epoch)
                .fetch_one(&mut *connection)
                .await
                .map_err(self.cannot("compare leases"))?;
            if is_held {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
