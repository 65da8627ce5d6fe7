//! The outbox as the relay uses it. The two statements that matter are functions in `migrations/0001_spine.sql`.
//!
//! There is no cursor: what is present is read, and what is settled is gone, so a row that commits late is simply read
//! late. Order within a key comes from one relay per shard, which `settle` enforces by locking and comparing the
//! leases in the same transaction that changes the rows.

use std::time::Duration;

use async_trait::async_trait;
use landfall_core::{
    Database, Decision, Lease, Message, OutboxEntry, OutboxQueue, OutboxWriter, Result, RowId, Settlement, Shard,
};

use crate::{Postgres, row};

/// As in the definition of the column `shard`.
const SHARDS: u16 = 16;

/// The longest delay that is stored, so that no interval overflows.
const LONGEST_RETRY: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

#[async_trait]
impl OutboxQueue for Postgres {
    async fn append(&self, messages: &[Message]) -> Result<()> {
        let mut transaction = self.begin().await?;
        self.enqueue(&mut transaction, messages).await?;
        self.commit(transaction).await?;
        self.wake();
        Ok(())
    }

    fn shards(&self) -> u16 {
        SHARDS
    }

    async fn next(&self, leases: &[Lease], limit: usize) -> Result<Vec<OutboxEntry>> {
        let shards: Vec<i16> = leases.iter().filter_map(shard).collect();
        if shards.is_empty() || limit == 0 {
            return Ok(Vec::new());
        }
        let doing = "read the outbox";
        let rows = sqlx::query(self.statements().next.text())
            .bind(shards)
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_all(self.pool())
            .await
            .map_err(self.could_not(doing))?;
        rows.iter().map(row::entry).collect::<sqlx::Result<_>>().map_err(self.could_not(doing))
    }

    async fn settle(&self, leases: &[Lease], settlements: &[Settlement]) -> Result<Vec<RowId>> {
        let given: Vec<(&Lease, i16)> = leases.iter().filter_map(|lease| Some((lease, shard(lease)?))).collect();
        if given.is_empty() || settlements.is_empty() {
            return Ok(Vec::new());
        }
        let decisions = Decisions::of(settlements);
        let settled: Vec<RowId> = sqlx::query_scalar(self.statements().settle.text())
            .bind(given.iter().map(|(lease, _)| lease.name.0.as_str()).collect::<Vec<_>>())
            .bind(given.iter().map(|(lease, _)| lease.holder.0.as_str()).collect::<Vec<_>>())
            .bind(given.iter().map(|(lease, _)| lease.epoch).collect::<Vec<_>>())
            .bind(given.iter().map(|(_, shard)| *shard).collect::<Vec<_>>())
            .bind(decisions.published)
            .bind(decisions.retried)
            .bind(decisions.retry_seconds)
            .bind(decisions.retry_errors)
            .bind(decisions.parked)
            .bind(decisions.park_codes)
            .bind(decisions.park_errors)
            .fetch_one(self.pool())
            .await
            .map_err(self.could_not("settle the outbox"))?;
        self.inner.vacuum.removed(settled.len(), self.pool(), &self.statements().vacuum);
        Ok(settled)
    }

    async fn wait(&self, at_most: Duration) {
        self.inner.signals.wait(at_most).await;
    }
}

fn shard(lease: &Lease) -> Option<i16> {
    Shard::of_lease(&lease.name).and_then(|shard| i16::try_from(shard.0).ok())
}

/// Settlements as the columns that `outbox_settle` takes.
#[derive(Default)]
struct Decisions<'a> {
    published: Vec<RowId>,
    retried: Vec<RowId>,
    retry_seconds: Vec<f64>,
    retry_errors: Vec<String>,
    parked: Vec<RowId>,
    park_codes: Vec<&'a str>,
    park_errors: Vec<String>,
}

impl<'a> Decisions<'a> {
    fn of(settlements: &'a [Settlement]) -> Self {
        let mut columns = Self { published: Vec::with_capacity(settlements.len()), ..Self::default() };
        for Settlement { row: id, shard: _, decision } in settlements {
            match decision {
                Decision::Published => columns.published.push(*id),
                Decision::Retry { after, error } => {
                    columns.retried.push(*id);
                    columns.retry_seconds.push((*after).min(LONGEST_RETRY).as_secs_f64());
                    columns.retry_errors.push(row::storable(error));
                }
                Decision::Park { code, error, holds_key: _ } => {
                    columns.parked.push(*id);
                    columns.park_codes.push(code.as_str());
                    columns.park_errors.push(row::storable(error));
                }
            }
        }
        columns
    }
}
