//! The relay's view of the outbox: what is due, and what became of it.
//!
//! Reading takes what is present and remembers no cursor, so a row can never be skipped. Settling happens under the
//! write lock and compares the lease's holder and epoch there, so a relay that lost its lease changes nothing.

use std::collections::HashSet;
use std::time::Duration;

use async_trait::async_trait;
use landfall_core::{
    Database, Decision, ErrorCode, Lease, Message, OutboxEntry, OutboxQueue, OutboxWriter, Result, RowId, Settlement,
    Shard,
};
use sqlx::SqliteConnection;

use crate::row::{self, SHARD};
use crate::{Sqlite, dead_letter};

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
        if !leases.iter().any(is_for_the_shard) {
            return Ok(Vec::new());
        }
        let rows = sqlx::query(self.statements().next.clone())
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
        self.inner.signals.wait(self, &self.heard, at_most).await;
    }
}

fn is_for_the_shard(lease: &Lease) -> bool {
    Shard::from_lease(&lease.name) == Some(SHARD)
}

impl Sqlite {
    /// Whether one of `leases` is for the shard and held under its epoch. An expired one that nobody took counts: its
    /// epoch proves that nobody else settled anything.
    async fn is_any_held(&self, connection: &mut SqliteConnection, leases: &[Lease]) -> Result<bool> {
        for lease in leases.iter().filter(|lease| is_for_the_shard(lease)) {
            let is_held: bool = sqlx::query_scalar(self.statements().lease_is_held.clone())
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

    async fn settle_published(
        &self,
        connection: &mut SqliteConnection,
        settlements: &[&Settlement],
    ) -> Result<HashSet<RowId>> {
        let published: Vec<RowId> = settlements
            .iter()
            .filter(|settlement| settlement.decision == Decision::Published)
            .map(|settlement| settlement.row)
            .collect();
        if published.is_empty() {
            return Ok(HashSet::new());
        }
        if self.inner.keeps_sent {
            sqlx::query(self.statements().keep_sent.clone())
                .bind(dead_letter::id_list(&published))
                .execute(&mut *connection)
                .await
                .map_err(self.cannot("keep sent messages"))?;
        }
        let removed: Vec<RowId> = sqlx::query_scalar(self.statements().published.clone())
            .bind(dead_letter::id_list(&published))
            .fetch_all(&mut *connection)
            .await
            .map_err(self.cannot("remove published messages"))?;
        sqlx::query(self.statements().count_published.clone())
            .bind(removed.len() as i64)
            .execute(connection)
            .await
            .map_err(self.cannot("count published messages"))?;
        Ok(removed.into_iter().collect())
    }

    async fn settle_retry(
        &self,
        connection: &mut SqliteConnection,
        row: RowId,
        after: Duration,
        error: &str,
    ) -> Result<bool> {
        let done = sqlx::query(self.statements().retry.clone())
            .bind(row)
            .bind(millis(after))
            .bind(error)
            .execute(connection)
            .await
            .map_err(self.cannot("put off a message"))?;
        Ok(done.rows_affected() > 0)
    }

    /// Makes the row a dead letter. Answers whether it was there to be parked.
    pub(crate) async fn park_row(
        &self,
        connection: &mut SqliteConnection,
        row: RowId,
        parking: Parking<'_>,
    ) -> Result<bool> {
        let Parking { code, error, holds_key, by } = parking;
        // A relay parks what has just failed once more, a person what has failed before.
        let (actor, failed_now, failed_before) = match by {
            Parker::Relay => ("relay", 1, 0),
            Parker::Person(name) => (name, 0, 1),
        };
        let parked: Vec<i64> = sqlx::query_scalar(self.statements().park_outbox_row.clone())
            .bind(row)
            .bind(code.as_str())
            .bind(error)
            .bind(holds_key)
            .bind(failed_now)
            .bind(failed_before)
            .fetch_all(&mut *connection)
            .await
            .map_err(self.cannot("park a message"))?;
        if parked.is_empty() {
            return Ok(false);
        }
        sqlx::query(self.statements().remove_outbox_row.clone())
            .bind(row)
            .execute(&mut *connection)
            .await
            .map_err(self.cannot("park a message"))?;
        self.hold_keys(connection, &parked).await?;
        self.record(connection, &parked, actor, "park", &format!("{code}: {error}")).await?;
        Ok(true)
    }
}

/// Why a row becomes a dead letter.
pub(crate) struct Parking<'a> {
    pub(crate) code: &'a ErrorCode,
    pub(crate) error: &'a str,
    pub(crate) holds_key: bool,
    pub(crate) by: Parker<'a>,
}

pub(crate) enum Parker<'a> {
    Relay,
    Person(&'a str),
}

/// A duration as SQLite's clock counts, rounded up; one that is longer than any calendar is cut.
pub(crate) fn millis(duration: Duration) -> i64 {
    let millis = duration.as_nanos().div_ceil(1_000_000);
    i64::try_from(millis).unwrap_or(i64::MAX).min(i64::MAX / 4)
}
