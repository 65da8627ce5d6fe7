//! Changes of rows: removed, delayed or parked. The transaction holds the write lock.

use std::collections::HashSet;
use std::time::Duration;

use landfall_core::adapter::{Decision, Settlement};
use landfall_core::{ErrorCode, Result, RowId};
use sqlx::SqliteConnection;

use crate::{Sqlite, dead_letter};

impl Sqlite {
    pub(crate) async fn settle_published(
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
            sqlx::query(self.statements().keep_sent.text())
                .bind(dead_letter::id_list(&published))
                .execute(&mut *connection)
                .await
                .map_err(self.cannot("keep sent messages"))?;
        }
        let removed: Vec<RowId> = sqlx::query_scalar(self.statements().published.text())
            .bind(dead_letter::id_list(&published))
            .fetch_all(&mut *connection)
            .await
            .map_err(self.cannot("remove published messages"))?;
        sqlx::query(self.statements().count_published.text())
            .bind(removed.len() as i64)
            .execute(connection)
            .await
            .map_err(self.cannot("count published messages"))?;
        Ok(removed.into_iter().collect())
    }

    pub(crate) async fn settle_retry(
        &self,
        connection: &mut SqliteConnection,
        row: RowId,
        after: Duration,
        error: &str,
    ) -> Result<bool> {
        let done = sqlx::query(self.statements().retry.text())
            .bind(row)
            .bind(millis(after))
            .bind(error)
            .execute(connection)
            .await
            .map_err(self.cannot("delay a message"))?;
        Ok(done.rows_affected() > 0)
    }

    /// Turns the row into a dead letter. Returns whether the row could be parked.
    pub(crate) async fn park_row(
        &self,
        connection: &mut SqliteConnection,
        row: RowId,
        parking: Parking<'_>,
    ) -> Result<bool> {
        let Parking { code, error, holds_key, by } = parking;
        // A relay parks a message that has just failed again, an operator one that has failed before.
        let (actor, failed_now, failed_before) = match by {
            Parker::Relay => ("relay", 1, 0),
            Parker::Operator(name) => (name, 0, 1),
        };
        let parked: Vec<i64> = sqlx::query_scalar(self.statements().park_outbox_row.text())
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
        sqlx::query(self.statements().remove_outbox_row.text())
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
    Operator(&'a str),
}

/// Converts a duration to milliseconds, rounded up and cut to what SQLite can add to a time.
pub(crate) fn millis(duration: Duration) -> i64 {
    let millis = duration.as_nanos().div_ceil(1_000_000);
    i64::try_from(millis).unwrap_or(i64::MAX).min(i64::MAX / 4)
}
