//! The outbox without order: rows are locked, sent and deleted, by as many relays as there are.

use async_trait::async_trait;
use landfall_core::{Claim, CompetingQueue, Database, Decision, OutboxEntry, Result, RowId, Settlement};
use sqlx::Transaction;

use crate::outbox_settle::{Plan, Whereabouts};
use crate::{Postgres, row};

#[async_trait]
impl CompetingQueue for Postgres {
    async fn claim(&self, limit: usize) -> Result<Box<dyn Claim>> {
        let doing = "claim messages of the outbox";
        let mut transaction = self.begin().await?;
        let rows = self
            .query(&self.statements().claim)
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_all(&mut *transaction)
            .await
            .map_err(self.could_not(doing))?;
        let claimed: Vec<_> =
            rows.iter().map(row::entry).collect::<sqlx::Result<_>>().map_err(self.could_not(doing))?;
        let waiting = claimed.iter().filter(|(_, waits)| *waits).map(|(entry, _)| entry.row).collect();
        let entries = claimed.into_iter().map(|(entry, _)| entry).collect();
        Ok(Box::new(Claimed { database: self.clone(), transaction, entries, waiting }))
    }
}

struct Claimed {
    database: Postgres,
    transaction: Transaction<'static, sqlx::Postgres>,
    entries: Vec<OutboxEntry>,
    /// Those that waited for another attempt; the others are rows of the outbox itself.
    waiting: Vec<RowId>,
}

#[async_trait]
impl Claim for Claimed {
    fn take_entries(&mut self) -> Vec<OutboxEntry> {
        std::mem::take(&mut self.entries)
    }

    async fn settle(mut self: Box<Self>, settlements: &[Settlement]) -> Result<()> {
        let (mut left, mut sent) = (Vec::new(), Vec::new());
        let mut plan = Plan::default();
        for Settlement { row, decision, .. } in settlements {
            if self.waiting.contains(row) {
                plan.add(*row, Whereabouts::Waiting, decision);
            } else {
                plan.add(*row, Whereabouts::Claimed, decision);
                left.push(*row);
                if *decision == Decision::Published {
                    sent.push(*row);
                }
            }
        }
        let database = self.database.clone();
        database.carry_out_claimed(&mut self.transaction, &plan).await?;
        if !left.is_empty() {
            database
                .query(&database.statements().leave)
                .bind(&left)
                .bind(&sent)
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
