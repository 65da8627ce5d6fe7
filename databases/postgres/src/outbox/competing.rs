//! The outbox for relays without order: any number of them lock, publish and delete rows.

use async_trait::async_trait;
use landfall_core::adapter::{Claim, Decision, OutboxEntry, Settlement};
use landfall_core::{CompetingQueue, Database, Result, RowId};
use sqlx::Transaction;

use super::settle::{Changes, RowLocation};
use crate::Postgres;
use crate::row::EntryColumns;

#[async_trait]
impl CompetingQueue for Postgres {
    async fn claim(&self, limit: usize) -> Result<Box<dyn Claim>> {
        let doing = "claim messages of the outbox";
        self.inner.is_adopted.get_or_try_init(|| self.adopt_restored_tables()).await?;
        let mut transaction = self.begin().await?;
        let rows = self
            .query(&self.statements().claim)
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_all(&mut *transaction)
            .await
            .map_err(self.could_not(doing))?;
        let (mut entries, mut waiting) = (Vec::with_capacity(rows.len()), Vec::new());
        if let Some(first) = rows.first() {
            let columns = EntryColumns::find(first, "waits").map_err(self.could_not(doing))?;
            for row in &rows {
                let (entry, waits) = columns.entry(row).map_err(self.could_not(doing))?;
                waiting.extend(waits.then_some(entry.row));
                entries.push(entry);
            }
        }
        if entries.is_empty() {
            self.rotate_if_quiet();
        }
        Ok(Box::new(Claimed { database: self.clone(), transaction, entries, waiting }))
    }
}

struct Claimed {
    database: Postgres,
    transaction: Transaction<'static, sqlx::Postgres>,
    entries: Vec<OutboxEntry>,
    /// Rows of the waiting table; the others are rows of the outbox.
    waiting: Vec<RowId>,
}

#[async_trait]
impl Claim for Claimed {
    fn take_entries(&mut self) -> Vec<OutboxEntry> {
        std::mem::take(&mut self.entries)
    }

    async fn settle(mut self: Box<Self>, settlements: &[Settlement]) -> Result<()> {
        let (mut removed, mut published) = (Vec::new(), Vec::new());
        let mut changes = Changes::default();
        for Settlement { row, decision, .. } in settlements {
            if self.waiting.contains(row) {
                changes.add(*row, RowLocation::Waiting, decision);
            } else {
                changes.add(*row, RowLocation::Claimed, decision);
                removed.push(*row);
                if *decision == Decision::Published {
                    published.push(*row);
                }
            }
        }
        let database = self.database.clone();
        database.apply_to_claimed(&mut self.transaction, &changes).await?;
        if !removed.is_empty() {
            database
                .query(&database.statements().remove_claimed)
                .bind(&removed)
                .bind(&published)
                .bind(database.inner.keep_sent.is_some())
                .execute(&mut *self.transaction)
                .await
                .map_err(database.could_not("remove claimed messages from the outbox"))?;
        }
        database.commit(self.transaction).await?;
        database.rotate_soon(settlements.len());
        Ok(())
    }
}
