//! Statements that are equal on every server, as PostgreSQL runs them.

use landfall_core::{DeadLetterId, Redriven, Result, TablePrefix};
use landfall_sql_toolkit::{Around, Cells, Dialect, LetterTables, Statement, bind_values, cells, letter_ports};
use sqlx::{AssertSqlSafe, PgConnection};

use crate::Postgres;

pub(crate) const DIALECT: Dialect = Dialect {
    is_numbered: true,
    key: "key",
    primary: "",
    lock: " FOR UPDATE",
    milliseconds: "CAST(floor(extract(epoch FROM @) * 1000) AS bigint)",
    number: "CAST(CAST(@ AS integer) AS bigint)",
    id_text: "CAST(@ AS text)",
    id: "CAST(? AS uuid)",
    time: "(timestamptz 'epoch' + CAST(? AS bigint) * interval '1 millisecond')",
    is_open: "@.status <> 'done'",
    unsent: "outbox_waiting",
    payload: "coalesce(payload, convert_to(payload_text, 'UTF8'))",
    json_text: "CAST(@ AS text)",
    json: "CAST(CAST(? AS text) AS jsonb)",
    done_at: "last_attempt",
    issued: "coalesce(pg_sequence_last_value(pg_get_serial_sequence('{p}@', 'id')::regclass), 0)",
    given_id: " OVERRIDING SYSTEM VALUE",
    // As the index has it.
    has_trace: Around("headers ->> 'traceparent' IS NOT NULL AND substr(headers ->> 'traceparent', 4, 32) = ", ""),
    error_contains: Around("strpos(lower(error), lower(", ")) > 0"),
    payload_contains: Around(
        "position(convert_to(",
        ", 'UTF8') IN coalesce(payload, convert_to(payload_text, 'UTF8'))) > 0",
    ),
    payload_has: "{p}payload_value(coalesce(payload, convert_to(payload_text, 'UTF8')), ?, ?)",
    now_ms: "CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint)",
    insert_new: Around("INSERT", " ON CONFLICT DO NOTHING"),
};

impl LetterTables for Postgres {
    fn dialect(&self) -> &'static Dialect {
        &DIALECT
    }

    fn table_prefix(&self) -> &TablePrefix {
        self.prefix()
    }

    async fn execute(&self, connection: &mut PgConnection, statement: Statement) -> Result<u64> {
        let Statement { text, values, doing, .. } = statement;
        let query = bind_values(sqlx::query(AssertSqlSafe(text)).persistent(false), values);
        Ok(query.execute(connection).await.map_err(self.could_not(doing))?.rows_affected())
    }

    async fn fetch(&self, connection: &mut PgConnection, statement: Statement) -> Result<Vec<Cells>> {
        let Statement { text, values, doing, columns } = statement;
        let query = bind_values(sqlx::query(AssertSqlSafe(text)).persistent(false), values);
        let rows = query.fetch_all(connection).await.map_err(self.could_not(doing))?;
        rows.iter().map(|row| cells(row, columns).map_err(self.could_not(doing))).collect()
    }

    async fn read(&self, statement: Statement) -> Result<Vec<Cells>> {
        let doing = statement.doing;
        let mut session = self.session().await?;
        let rows = self.fetch(session.connection(), statement).await?;
        session.finish().await.map_err(self.could_not(doing))?;
        Ok(rows)
    }

    async fn redrive_in(
        &self,
        connection: &mut PgConnection,
        ids: &[DeadLetterId],
        actor: &str,
        detail: &str,
    ) -> Result<Redriven> {
        let parked = self
            .query_as(&self.statements().lock_parked)
            .bind(ids)
            .fetch_all(&mut *connection)
            .await
            .map_err(self.could_not("lock dead letters"))?;
        let redriven = self.redrive_parked(connection, &parked, actor, detail).await?;
        Ok(Redriven { redriven, skipped: Vec::new() })
    }
}

letter_ports!(Postgres);
