//! Statements that are equal on every server, as MySQL and MariaDB run them.

use landfall_core::{DeadLetterId, Error, Redriven, Result, TablePrefix};
use landfall_sql_toolkit::{Around, Cells, Dialect, LetterTables, Statement, bind_values, cells, letter_ports};
use sqlx::{AssertSqlSafe, MySqlConnection};

use crate::connection::retry::is_rolled_back;
use crate::{MySql, row};

pub(crate) const DIALECT: Dialect = Dialect {
    is_numbered: false,
    key: "`key`",
    primary: "FORCE INDEX (PRIMARY)",
    lock: " FOR UPDATE",
    milliseconds: "CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', @) DIV 1000 AS SIGNED)",
    number: "CAST(@ AS SIGNED)",
    id_text: "LOWER(CONCAT_WS('-', SUBSTR(HEX(@), 1, 8), SUBSTR(HEX(@), 9, 4), SUBSTR(HEX(@), 13, 4), \
              SUBSTR(HEX(@), 17, 4), SUBSTR(HEX(@), 21)))",
    id: "UNHEX(REPLACE(?, '-', ''))",
    time: "(CAST('1970-01-01' AS DATETIME(6)) + INTERVAL (? * 1000) MICROSECOND)",
    is_open: "@.is_open = 1",
    unsent: "outbox",
    payload: "payload",
    json_text: "@",
    json: "?",
    done_at: "done_at",
    // An insert with a higher id raises the next one.
    issued: "9223372036854775807",
    given_id: "",
    has_trace: Around(
        "SUBSTR(CASE WHEN JSON_VALID(headers) THEN JSON_UNQUOTE(JSON_EXTRACT(headers, '$.traceparent')) END, 4, 32) = ",
        "",
    ),
    error_contains: Around("INSTR(LOWER(error), LOWER(", ")) > 0"),
    payload_contains: Around("INSTR(payload, CAST(", " AS BINARY)) > 0"),
    payload_has: "CASE WHEN JSON_VALID(CONVERT(payload USING utf8mb4)) THEN \
                  CONVERT(JSON_EXTRACT(CONVERT(payload USING utf8mb4), ?) USING utf8mb4) = BINARY ? OR \
                  CONVERT(JSON_UNQUOTE(JSON_EXTRACT(CONVERT(payload USING utf8mb4), ?)) USING utf8mb4) = BINARY ? END",
    now_ms: "CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000 AS SIGNED)",
    insert_new: Around("INSERT IGNORE", ""),
};

impl LetterTables for MySql {
    fn dialect(&self) -> &'static Dialect {
        &DIALECT
    }

    fn table_prefix(&self) -> &TablePrefix {
        self.prefix()
    }

    async fn execute(&self, connection: &mut MySqlConnection, statement: Statement) -> Result<u64> {
        let Statement { text, values, doing, .. } = statement;
        let query = bind_values(sqlx::query(AssertSqlSafe(text)).persistent(false), values);
        Ok(query.execute(connection).await.map_err(self.could_not(doing))?.rows_affected())
    }

    async fn fetch(&self, connection: &mut MySqlConnection, statement: Statement) -> Result<Vec<Cells>> {
        let Statement { text, values, doing, columns } = statement;
        let query = bind_values(sqlx::query(AssertSqlSafe(text)).persistent(false), values);
        let rows = query.fetch_all(connection).await.map_err(self.could_not(doing))?;
        rows.iter().map(|row| cells(row, columns).map_err(self.could_not(doing))).collect()
    }

    async fn read(&self, statement: Statement) -> Result<Vec<Cells>> {
        let mut connection = self.pool().acquire().await.map_err(self.could_not("open a connection"))?;
        self.fetch(&mut connection, statement).await
    }

    async fn redrive_in(
        &self,
        connection: &mut MySqlConnection,
        ids: &[DeadLetterId],
        actor: &str,
        detail: &str,
    ) -> Result<Redriven> {
        let locked = self.lock_parked(connection, ids).await?;
        let redriven = self.redrive_parked(connection, &locked, &row::actor(actor), detail).await?;
        Ok(Redriven { redriven, skipped: Vec::new() })
    }

    fn is_rolled_back(&self, error: &Error) -> bool {
        is_rolled_back(error)
    }
}

letter_ports!(MySql);
