//! The outbox for relays that keep order.
//!
//! There is no cursor: the relay reads the rows that are present, and settled rows are deleted. A row that commits late
//! is read late. Order within a key comes from one relay per shard. Settling enforces it by locking and comparing the
//! leases in the same transaction.

use std::collections::HashSet;
use std::time::Duration;

use async_trait::async_trait;
use landfall_core::adapter::{Decision, Lease, OutboxEntry, Settlement, Shard};
use landfall_core::{Database, Message, OutboxQueue, OutboxWriter, Result, RowId};
use sqlx::MySqlConnection;

use crate::connection::retry::retry_deadlocks;
use crate::connection::transaction::UNDO;
use crate::lease::{LeaseRow, is_held, padded};
use crate::outbox::settle::json_array;
use crate::statements::{ByRows, SHARDS};
use crate::{MySql, row};

#[async_trait]
impl OutboxQueue for MySql {
    async fn append(&self, messages: &[Message]) -> Result<()> {
        retry_deadlocks(|| async {
            let mut transaction = self.begin().await?;
            self.enqueue(&mut transaction, messages).await?;
            self.commit(transaction).await
        })
        .await?;
        self.wake();
        Ok(())
    }

    fn shards(&self) -> u16 {
        SHARDS
    }

    async fn next(&self, leases: &[Lease], limit: usize) -> Result<Vec<OutboxEntry>> {
        let shards: Vec<u16> = leases.iter().filter_map(shard).collect();
        if shards.is_empty() || limit == 0 {
            return Ok(Vec::new());
        }
        let doing = "read the outbox";
        let query = padded(&shards).fold(sqlx::query(self.statements().next.text()), |query, shard| query.bind(shard));
        let mut connection = self.pool().acquire().await.map_err(self.could_not("open a connection"))?;
        let rows = query
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_all(&mut *connection)
            .await
            .map_err(self.could_not(doing))?;
        if !rows.is_empty() {
            self.flush_on(&mut connection).await?;
        }
        row::entries(&rows).map_err(self.could_not(doing))
    }

    async fn settle(&self, leases: &[Lease], settlements: &[Settlement]) -> Result<Vec<RowId>> {
        let concerned: HashSet<Shard> = settlements.iter().map(|settlement| settlement.shard).collect();
        let is_concerned =
            |lease: &&Lease| Shard::from_lease(&lease.name).is_some_and(|shard| concerned.contains(&shard));
        let leases: Vec<&Lease> = leases.iter().filter(is_concerned).collect();
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        retry_deadlocks(|| self.settle_once(&leases, settlements)).await
    }

    async fn wait(&self, at_most: Duration) {
        self.inner.signals.wait(at_most).await;
    }
}

impl MySql {
    async fn settle_once(&self, leases: &[&Lease], settlements: &[Settlement]) -> Result<Vec<RowId>> {
        let mut transaction = self.begin().await?;
        let live = self.lock_leases(&mut transaction, leases).await?;
        let Some(first) = live.first().copied() else { return Ok(Vec::new()) };
        let ids: Vec<RowId> = settlements.iter().map(|settlement| settlement.row).collect();

        // Usually every row was published and still exists: then one statement is enough, and its count proves it.
        let all_published = settlements.iter().all(|settlement| settlement.decision == Decision::Published);
        if all_published && !self.inner.keeps_sent {
            let removed = self.remove_of_shards(&mut transaction, &ids, &live).await?;
            if removed == ids.iter().collect::<HashSet<_>>().len() {
                self.count_published(&mut transaction, removed, first).await?;
                self.commit(transaction).await?;
                return Ok(ids);
            }
            // Some rows were missing, and the count does not say which: undo, and settle by id. The leases stay locked.
            sqlx::raw_sql(UNDO).execute(&mut *transaction).await.map_err(self.could_not("settle the outbox"))?;
        }
        let present = self.lock_rows(&mut transaction, &ids, &live).await?;
        let changed: Vec<&Settlement> =
            settlements.iter().filter(|settlement| present.contains(&settlement.row)).collect();
        self.apply_decisions(&mut transaction, &changed, first).await?;
        self.commit(transaction).await?;
        Ok(changed.iter().map(|settlement| settlement.row).collect())
    }

    /// Locks the leases and returns the shards of those that are still held under the same epoch.
    async fn lock_leases(&self, connection: &mut MySqlConnection, leases: &[&Lease]) -> Result<Vec<u16>> {
        let names: Vec<&str> = leases.iter().map(|lease| lease.name.0.as_str()).collect();
        let query =
            padded(&names).fold(sqlx::query_as(self.statements().lock_leases.text()), |query, name| query.bind(name));
        let found: Vec<LeaseRow> = query.fetch_all(connection).await.map_err(self.could_not("compare leases"))?;
        Ok(leases.iter().filter(|lease| is_held(lease, &found)).filter_map(|lease| shard(lease)).collect())
    }

    async fn remove_of_shards(&self, connection: &mut MySqlConnection, ids: &[RowId], shards: &[u16]) -> Result<usize> {
        let query = sqlx::query(self.statements().remove_of_shards.text()).bind(json_array(ids));
        let query = padded(shards).fold(query, |query, shard| query.bind(shard));
        let done = query.execute(connection).await.map_err(self.could_not("remove sent messages"))?;
        Ok(done.rows_affected() as usize)
    }

    async fn lock_rows(
        &self,
        connection: &mut MySqlConnection,
        ids: &[RowId],
        shards: &[u16],
    ) -> Result<HashSet<RowId>> {
        let mut present = HashSet::new();
        for chunk in ids.chunks(ByRows::MOST) {
            let (text, bound) = self.statements().lock_rows.fit(chunk);
            let query = bound.fold(sqlx::query_scalar(text), |query, id| query.bind(id));
            let query = padded(shards).fold(query, |query, shard| query.bind(shard));
            let found: Vec<RowId> =
                query.fetch_all(&mut *connection).await.map_err(self.could_not("settle the outbox"))?;
            present.extend(found);
        }
        Ok(present)
    }
}

fn shard(lease: &Lease) -> Option<u16> {
    Shard::from_lease(&lease.name).map(|shard| shard.0).filter(|shard| *shard < SHARDS)
}
