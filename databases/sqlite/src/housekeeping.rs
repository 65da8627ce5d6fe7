//! Removing what nobody needs any more, a little at a time: SQLite has one write lock, and every step holds it.

use std::time::Duration;

use async_trait::async_trait;
use landfall_core::{Database, Housekeeping, Result};
use sqlx::SqlStr;

use crate::Sqlite;
use crate::outbox_queue::millis;

#[async_trait]
impl Housekeeping for Sqlite {
    async fn remove_sent(&self, age: Duration, at_most: u64) -> Result<u64> {
        self.remove(&self.statements().remove_sent, age, at_most, "remove sent messages").await
    }

    async fn forget_handled(&self, age: Duration, at_most: u64) -> Result<u64> {
        self.remove(&self.statements().forget_handled, age, at_most, "forget handled messages").await
    }

    async fn remove_done_letters(&self, age: Duration, at_most: u64) -> Result<u64> {
        self.remove(&self.statements().remove_done_letters, age, at_most, "remove dead letters").await
    }

    async fn forget_sequences(&self, age: Duration, at_most: u64) -> Result<u64> {
        self.remove(&self.statements().forget_sequences, age, at_most, "forget what was reached").await
    }
}

impl Sqlite {
    async fn remove(&self, statement: &SqlStr, age: Duration, at_most: u64, what: &'static str) -> Result<u64> {
        let mut transaction = self.begin().await?;
        let done = sqlx::query(statement.clone())
            .bind(millis(age))
            .bind(i64::try_from(at_most).unwrap_or(i64::MAX))
            .execute(&mut *transaction)
            .await
            .map_err(self.cannot(what))?;
        self.commit(transaction).await?;
        Ok(done.rows_affected())
    }
}
