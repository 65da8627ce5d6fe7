//! What nobody needs any more goes, a little at a time.

use std::time::Duration;

use async_trait::async_trait;
use landfall_core::{Database, Housekeeping, Result};

use crate::MySql;
use crate::retry::retried;
use crate::settle::micros;
use crate::statements::Sql;

#[async_trait]
impl Housekeeping for MySql {
    async fn remove_sent(&self, age: Duration, at_most: u64) -> Result<u64> {
        retried(|| self.remove_old(&self.statements().remove_sent, age, at_most)).await
    }

    async fn forget_handled(&self, age: Duration, at_most: u64) -> Result<u64> {
        retried(|| self.remove_old(&self.statements().forget_handled, age, at_most)).await
    }

    async fn remove_done_letters(&self, age: Duration, at_most: u64) -> Result<u64> {
        retried(|| self.remove_old(&self.statements().remove_done_letters, age, at_most)).await
    }

    async fn forget_sequences(&self, age: Duration, at_most: u64) -> Result<u64> {
        retried(|| self.remove_old(&self.statements().forget_sequences, age, at_most)).await
    }
}

impl MySql {
    async fn remove_old(&self, statement: &Sql, age: Duration, at_most: u64) -> Result<u64> {
        let mut transaction = self.begin().await?;
        let removed = sqlx::query(statement.text())
            .bind(micros(age))
            .bind(i64::try_from(at_most).unwrap_or(i64::MAX))
            .execute(&mut *transaction)
            .await
            .map_err(self.could_not("remove what is old"))?
            .rows_affected();
        self.commit(transaction).await?;
        Ok(removed)
    }
}
