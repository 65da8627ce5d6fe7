//! Changes of rows: removed, delayed or parked. The caller has locked the rows.

use std::time::Duration;

use landfall_core::adapter::{Decision, Settlement};
use landfall_core::{ErrorCode, Result, RowId};
use sqlx::MySqlConnection;
use sqlx::mysql::MySqlArguments;
use sqlx::query::Query;

use crate::statements::ByRows;
use crate::{MySql, row};

/// The longest delay that is stored, so that no date overflows.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

impl MySql {
    /// Applies decisions to rows that exist and are locked, and adds the published ones to the count of `shard`.
    pub(crate) async fn apply_decisions(
        &self,
        connection: &mut MySqlConnection,
        settlements: &[&Settlement],
        shard: u16,
    ) -> Result<()> {
        let published: Vec<RowId> = settlements
            .iter()
            .filter(|settlement| settlement.decision == Decision::Published)
            .map(|settlement| settlement.row)
            .collect();
        if !published.is_empty() {
            if self.inner.keeps_sent {
                self.run(connection, &self.statements().keep, &published, "keep sent messages").await?;
            }
            self.remove(connection, &published).await?;
            self.count_published(connection, published.len(), shard).await?;
        }
        for settlement in settlements {
            match &settlement.decision {
                Decision::Published => {}
                Decision::Retry { after, error } => self.delay(connection, settlement.row, *after, error).await?,
                Decision::Park { code, error, holds_key } => {
                    let parking = Parking { code, error, new_attempts: 1, holds_key: *holds_key, actor: "relay" };
                    self.park_row(connection, settlement.row, parking).await?;
                }
            }
        }
        Ok(())
    }

    async fn remove(&self, connection: &mut MySqlConnection, ids: &[RowId]) -> Result<()> {
        let query = sqlx::query(self.statements().remove.text()).bind(json_array(ids));
        query.execute(connection).await.map_err(self.could_not("remove messages of the outbox"))?;
        Ok(())
    }

    pub(crate) async fn count_published(
        &self,
        connection: &mut MySqlConnection,
        rows: usize,
        shard: u16,
    ) -> Result<()> {
        sqlx::query(self.statements().count_published.text())
            .bind(rows as i64)
            .bind(shard)
            .execute(connection)
            .await
            .map_err(self.could_not("count sent messages"))?;
        Ok(())
    }

    async fn delay(&self, connection: &mut MySqlConnection, id: RowId, after: Duration, error: &str) -> Result<()> {
        sqlx::query(self.statements().retry.text())
            .bind(micros(after.min(MAX_RETRY_DELAY)))
            .bind(row::storable(error))
            .bind(id)
            .execute(connection)
            .await
            .map_err(self.could_not("delay a message"))?;
        Ok(())
    }

    /// Turns a row of the outbox into a dead letter.
    pub(crate) async fn park_row(
        &self,
        connection: &mut MySqlConnection,
        id: RowId,
        parking: Parking<'_>,
    ) -> Result<()> {
        let doing = "park a message";
        let Parking { code, error, new_attempts, holds_key, actor } = parking;
        let error = row::storable(error);
        let letter = sqlx::query(self.statements().park_row.text())
            .bind(code.as_str())
            .bind(&error)
            .bind(new_attempts)
            .bind(holds_key)
            .bind(id)
            .execute(&mut *connection)
            .await
            .map_err(self.could_not(doing))?
            .last_insert_id();
        self.remove(connection, &[id]).await?;
        let letter = i64::try_from(letter).unwrap_or_default();
        if holds_key {
            self.hold_key(connection, letter).await?;
        }
        self.audit_letter(connection, letter, actor, "park", &error).await
    }

    /// Runs a statement whose only parameters are `ids`, in chunks.
    pub(crate) async fn run(
        &self,
        connection: &mut MySqlConnection,
        statement: &ByRows,
        ids: &[i64],
        what: &'static str,
    ) -> Result<()> {
        self.run_with(connection, statement, ids, what, |query| query).await
    }

    /// Runs a statement on `ids`, in chunks, after `bind_first` has bound the parameters in front of them.
    pub(crate) async fn run_with(
        &self,
        connection: &mut MySqlConnection,
        statement: &ByRows,
        ids: &[i64],
        what: &'static str,
        bind_first: impl for<'q> Fn(Query<'q, sqlx::MySql, MySqlArguments>) -> Query<'q, sqlx::MySql, MySqlArguments>,
    ) -> Result<()> {
        for chunk in ids.chunks(ByRows::MOST) {
            let (text, bound) = statement.fit(chunk);
            let query = bound.fold(bind_first(sqlx::query(text)), |query, id| query.bind(id));
            query.execute(&mut *connection).await.map_err(self.could_not(what))?;
        }
        Ok(())
    }
}

/// Returns ids as the JSON array that statements join.
pub(crate) fn json_array(ids: &[i64]) -> String {
    serde_json::Value::from(ids).to_string()
}

/// Why a row is parked, and the actor.
pub(crate) struct Parking<'a> {
    pub(crate) code: &'a ErrorCode,
    pub(crate) error: &'a str,
    /// Failed attempts that are not counted yet.
    pub(crate) new_attempts: u32,
    pub(crate) holds_key: bool,
    pub(crate) actor: &'a str,
}

/// Converts a duration to microseconds, rounded up and cut to the longest delay.
pub(crate) fn micros(duration: Duration) -> i64 {
    let micros = duration.as_nanos().div_ceil(1000).min(MAX_RETRY_DELAY.as_micros());
    i64::try_from(micros).unwrap_or(i64::MAX)
}
