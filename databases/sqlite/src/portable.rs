//! Statements that are equal on every server, as SQLite runs them.

use landfall_core::{DeadLetterFilter, DeadLetterId, Redriven, Result, TablePrefix};
use landfall_sql_toolkit::{Around, Cells, Dialect, LetterTables, Statement, bind_values, cells, letter_ports};
use sqlx::{AssertSqlSafe, SqliteConnection};

use crate::Sqlite;

pub(crate) const DIALECT: Dialect = Dialect {
    is_numbered: false,
    key: "key",
    primary: "",
    // A transaction has the write lock from its beginning.
    lock: "",
    milliseconds: "@",
    number: "@",
    id_text: "@",
    id: "?",
    time: "?",
    is_open: "@.status <> 'done'",
    unsent: "outbox",
    payload: "CAST(payload AS BLOB)",
    json_text: "@",
    json: "?",
    done_at: "done_at",
    // An insert with a higher id raises the next one.
    issued: "9223372036854775807",
    given_id: "",
    has_trace: Around(
        "substr(CASE WHEN json_valid(headers) THEN json_extract(headers, '$.traceparent') END, 4, 32) = ",
        "",
    ),
    error_contains: Around("instr(lower(error), lower(", ")) > 0"),
    payload_contains: Around("instr(CAST(payload AS BLOB), CAST(", " AS BLOB)) > 0"),
    payload_has: "CASE WHEN json_valid(CAST(payload AS TEXT)) THEN (CAST(payload AS TEXT) -> ?) = ? OR \
                  (CAST(payload AS TEXT) ->> ?) = ? END",
    now_ms: "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)",
    insert_new: Around("INSERT OR IGNORE", ""),
};

impl LetterTables for Sqlite {
    fn dialect(&self) -> &'static Dialect {
        &DIALECT
    }

    fn table_prefix(&self) -> &TablePrefix {
        self.prefix()
    }

    async fn execute(&self, connection: &mut SqliteConnection, statement: Statement) -> Result<u64> {
        let Statement { text, values, doing, .. } = statement;
        let query = bind_values(sqlx::query(AssertSqlSafe(text)).persistent(false), values);
        Ok(query.execute(connection).await.map_err(self.cannot(doing))?.rows_affected())
    }

    async fn fetch(&self, connection: &mut SqliteConnection, statement: Statement) -> Result<Vec<Cells>> {
        let Statement { text, values, doing, columns } = statement;
        let query = bind_values(sqlx::query(AssertSqlSafe(text)).persistent(false), values);
        let rows = query.fetch_all(connection).await.map_err(self.cannot(doing))?;
        rows.iter().map(|row| cells(row, columns).map_err(self.cannot(doing))).collect()
    }

    async fn read(&self, statement: Statement) -> Result<Vec<Cells>> {
        let mut connection = self.inner.pool.acquire().await.map_err(self.cannot("open a connection"))?;
        self.fetch(&mut connection, statement).await
    }

    async fn redrive_in(
        &self,
        connection: &mut SqliteConnection,
        ids: &[DeadLetterId],
        actor: &str,
        detail: &str,
    ) -> Result<Redriven> {
        let mut redriven = Vec::new();
        for id in ids {
            let filter = DeadLetterFilter { id: Some(*id), ..DeadLetterFilter::default() };
            redriven.extend(self.matching(&mut *connection, &filter).await?.0.redriven);
        }
        self.redrive_parked(connection, &redriven, actor, detail).await?;
        Ok(Redriven { redriven, skipped: Vec::new() })
    }
}

letter_ports!(Sqlite);
