//! What becomes of rows: gone, put off, or parked. Every function works on rows that its caller has locked.

use std::time::Duration;

use landfall_core::{Decision, ErrorCode, Result, RowId, Settlement};
use sqlx::MySqlConnection;
use sqlx::mysql::MySqlArguments;
use sqlx::query::Query;

use crate::statements::ByRows;
use crate::{MySql, row};

/// The longest delay that is stored, so that no date overflows.
const LONGEST_RETRY: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

impl MySql {
    /// Carries out decisions about rows that are there and locked, and counts what was published for `shard`.
    pub(crate) async fn carry_out(
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
                self.run(connection, &self.statements().keep, &published, "keep what was sent").await?;
            }
            self.remove(connection, &published).await?;
            self.count_published(connection, published.len(), shard).await?;
        }
        for settlement in settlements {
            match &settlement.decision {
                Decision::Published => {}
                Decision::Retry { after, error } => self.put_off(connection, settlement.row, *after, error).await?,
                Decision::Park { code, error, holds_key } => {
                    let parking = Parking { code, error, tries: 1, holds_key: *holds_key, actor: "relay" };
                    self.park_row(connection, settlement.row, parking).await?;
                }
            }
        }
        Ok(())
    }

    async fn remove(&self, connection: &mut MySqlConnection, ids: &[RowId]) -> Result<()> {
        let query = sqlx::query(self.statements().remove.text()).bind(listed(ids));
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
            .map_err(self.could_not("count what was sent"))?;
        Ok(())
    }

    async fn put_off(&self, connection: &mut MySqlConnection, id: RowId, after: Duration, error: &str) -> Result<()> {
        sqlx::query(self.statements().retry.text())
            .bind(micros(after.min(LONGEST_RETRY)))
            .bind(row::storable(error))
            .bind(id)
            .execute(connection)
            .await
            .map_err(self.could_not("put off a message"))?;
        Ok(())
    }

    /// Makes a row of the outbox a dead letter.
    pub(crate) async fn park_row(
        &self,
        connection: &mut MySqlConnection,
        id: RowId,
        parking: Parking<'_>,
    ) -> Result<()> {
        let doing = "park a message";
        let Parking { code, error, tries, holds_key, actor } = parking;
        let error = row::storable(error);
        let letter = sqlx::query(self.statements().park_row.text())
            .bind(code.as_str())
            .bind(&error)
            .bind(tries)
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

    /// Runs a statement that is about `ids` and nothing else, in chunks.
    pub(crate) async fn run(
        &self,
        connection: &mut MySqlConnection,
        statement: &ByRows,
        ids: &[i64],
        what: &'static str,
    ) -> Result<()> {
        self.run_with(connection, statement, ids, what, |query| query).await
    }

    /// The same for a statement with other parameters, which `bind_first` binds, before them.
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

/// Ids as the JSON array in which they travel to statements that join them.
pub(crate) fn listed(ids: &[i64]) -> String {
    serde_json::Value::from(ids).to_string()
}

/// Why a row is parked, and by whom.
pub(crate) struct Parking<'a> {
    pub(crate) code: &'a ErrorCode,
    pub(crate) error: &'a str,
    /// Failed tries that are not counted yet.
    pub(crate) tries: u32,
    pub(crate) holds_key: bool,
    pub(crate) actor: &'a str,
}

/// A duration as the server's intervals count, rounded up; one that is longer than any calendar is cut.
pub(crate) fn micros(duration: Duration) -> i64 {
    let micros = duration.as_nanos().div_ceil(1000).min(LONGEST_RETRY.as_micros());
    i64::try_from(micros).unwrap_or(i64::MAX)
}
