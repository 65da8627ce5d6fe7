//! Migrations: numbered, applied one at a time under a named lock.
//!
//! DDL commits implicitly in MySQL, so an interrupted migration leaves some tables behind. Its number is therefore
//! recorded before its first statement, and marked as applied after its last one. A number without that mark is a
//! migration to be resumed, and only then may a table exist already.

use async_trait::async_trait;
use landfall_core::adapter::SchemaState;
use landfall_core::{Error, ErrorKind, Result, Schema};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection};

use crate::connection::error;
use crate::{MySql, statements};

/// Migration `n` upgrades the tables from version `n - 1` to `n`. Each of its statements can be run again. Only its
/// number is recorded, so comments may change.
const MIGRATIONS: &[&str] = &[
    concat!(include_str!("../migrations/0001_spine.sql"), "\n", include_str!("../migrations/0001_sequence.sql")),
    concat!(
        include_str!("../migrations/0002_lease_ttl.sql"),
        "\n",
        include_str!("../migrations/0002_enqueued_id.sql"),
        "\n",
        include_str!("../migrations/0002_delivery.sql"),
        "\n",
        include_str!("../migrations/0002_dead_letter.sql"),
        "\n",
        include_str!("../migrations/0002_payload_text.sql")
    ),
    concat!(
        include_str!("../migrations/0003_half_message.sql"),
        "\n",
        include_str!("../migrations/0003_barrier.sql"),
        "\n",
        include_str!("../migrations/0003_idempotency.sql"),
        "\n",
        include_str!("../migrations/0003_dead_letter.sql"),
        "\n",
        include_str!("../migrations/0003_redrive.sql"),
        "\n",
        include_str!("../migrations/0003_rehearsal.sql"),
        "\n",
        include_str!("../migrations/0003_alert.sql"),
        "\n",
        include_str!("../migrations/0003_archive.sql"),
        "\n",
        include_str!("../migrations/0003_dead_letter_group.sql"),
        "\n",
        include_str!("../migrations/0003_dead_letter_key.sql")
    ),
];

const SCHEMA_TABLE: &str = "\
-- The migrations that were applied to these tables; an unfinished one has no time.
CREATE TABLE {new} {p}schema (
    version    BIGINT NOT NULL PRIMARY KEY,
    applied_at DATETIME(6)
) {table};
";

/// How long a migration waits for another one.
const LOCK_WITHIN_SECONDS: i64 = 60;

#[async_trait]
impl Schema for MySql {
    fn ddl(&self) -> String {
        let prefix = self.prefix();
        let mut text = String::new();
        if let Some(schema) = prefix.schema() {
            text.push_str(&format!("CREATE DATABASE IF NOT EXISTS {schema};\n\n"));
        }
        text.push_str(&self.filled(SCHEMA_TABLE, false));
        for (version, migration) in (1..).zip(MIGRATIONS) {
            let table = prefix.as_str();
            text.push_str(&format!("\nINSERT INTO {table}schema (version) VALUES ({version});\n\n"));
            text.push_str(&self.filled(migration, false));
            text.push_str(&format!(
                "\nUPDATE {table}schema SET applied_at = UTC_TIMESTAMP(6) WHERE version = {version};\n"
            ));
        }
        text
    }

    async fn state(&self) -> Result<SchemaState> {
        let mut connection = self.pool().acquire().await.map_err(self.could_not("open a connection"))?;
        self.found(&mut connection).await
    }

    async fn migrate(&self) -> Result<bool> {
        if !is_behind(self.state().await?)? {
            return Ok(false);
        }
        // A separate connection, not from the pool: closing it releases the lock in every case.
        let target = self.pool().connect_options();
        let mut connection =
            MySqlConnection::connect_with(&target).await.map_err(self.could_not("open a connection"))?;
        let migrated = self.migrate_under_lock(&mut connection).await;
        // The server also notices a connection that is closed without a message.
        let _ = connection.close().await;
        migrated
    }

    async fn check(&self) -> Result<()> {
        self.state().await?.require_current()
    }
}

/// Returns whether there is something to migrate. Refuses tables of a newer version.
fn is_behind(state: SchemaState) -> Result<bool> {
    state.refuse_newer()?;
    Ok(state.found < state.expected)
}

/// Runs the statements of a migration. Skips columns and indexes that an interrupted run has added.
async fn run_script(connection: &mut MySqlConnection, script: &str, is_resumed: bool) -> sqlx::Result<()> {
    if !is_resumed {
        return sqlx::raw_sql(AssertSqlSafe(script)).execute(connection).await.map(drop);
    }
    for statement in script.split_inclusive(";\n").filter(|statement| statement.trim_end().ends_with(';')) {
        match sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut *connection).await {
            Err(error) if !error::is_existing_column_or_index(&error) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

impl MySql {
    async fn migrate_under_lock(&self, connection: &mut MySqlConnection) -> Result<bool> {
        // A lock's name is global to the server and has at most 64 characters, like this hash.
        let lock =
            "SELECT COALESCE(GET_LOCK(SHA2(CONCAT('landfall migrate ', COALESCE(DATABASE(), ''), ' ', ?), 256), ?), 0)";
        let is_locked: i64 = sqlx::query_scalar(lock)
            .bind(self.prefix().as_str())
            .bind(LOCK_WITHIN_SECONDS)
            .fetch_one(&mut *connection)
            .await
            .map_err(self.could_not("lock the schema"))?;
        if is_locked == 0 {
            let sentence =
                format!("another migration of {} has been running for a minute", self.inner.server.address());
            return Err(Error::new(ErrorKind::Unavailable, sentence));
        }
        let state = self.found(connection).await?;
        if !is_behind(state)? {
            return Ok(false);
        }
        if let Some(schema) = self.prefix().schema() {
            self.apply(connection, &format!("CREATE DATABASE IF NOT EXISTS {schema}")).await?;
        }
        self.apply(connection, &self.filled(SCHEMA_TABLE, true)).await?;
        for (version, migration) in (1..).zip(MIGRATIONS).skip_while(|(version, _)| *version <= state.found) {
            self.step(connection, version, migration).await?;
        }
        Ok(true)
    }

    async fn step(&self, connection: &mut MySqlConnection, version: i64, migration: &str) -> Result<()> {
        let (sql, doing) = (self.statements(), "record the schema's version");
        let begun: i64 = sqlx::query_scalar(sql.schema_begun.text())
            .bind(version)
            .fetch_one(&mut *connection)
            .await
            .map_err(self.could_not(doing))?;
        let record = async |connection: &mut MySqlConnection, statement: &statements::Sql| {
            let query = sqlx::query(statement.text()).bind(version);
            query.execute(connection).await.map(drop).map_err(self.could_not(doing))
        };
        if begun == 0 {
            record(connection, &sql.schema_begin).await?;
        }
        let script = self.filled(migration, begun > 0);
        match run_script(connection, &script, begun > 0).await {
            Ok(()) => record(connection, &sql.schema_record).await,
            Err(error) if begun == 0 && error::is_existing_table(&error) => {
                // The table is not Landfall's. With the number left behind, the next migration would adopt it.
                record(connection, &sql.schema_abandon).await?;
                let sentence = "a table of this name exists and is not landfall's; choose another table prefix";
                Err(Error::new(ErrorKind::Schema, sentence).with_source(error))
            }
            Err(error) => Err(self.could_not("migrate the tables")(error)),
        }
    }

    /// Returns the script for missing tables, or for the rest of an interrupted migration.
    fn filled(&self, script: &str, is_resumed: bool) -> String {
        let script = script.replace("{new} ", if is_resumed { "IF NOT EXISTS " } else { "" });
        statements::fill(&script, self.prefix())
    }

    async fn found(&self, connection: &mut MySqlConnection) -> Result<SchemaState> {
        let expected = MIGRATIONS.len() as i64;
        match sqlx::query_scalar(self.statements().schema_version.text()).fetch_one(connection).await {
            Ok(found) => Ok(SchemaState { found, expected }),
            Err(error) if error::is_missing_table(&error) => Ok(SchemaState { found: 0, expected }),
            Err(error) => Err(self.could_not("read the schema's version")(error)),
        }
    }

    async fn apply(&self, connection: &mut MySqlConnection, script: &str) -> Result<()> {
        sqlx::raw_sql(AssertSqlSafe(script)).execute(connection).await.map_err(self.could_not("migrate the tables"))?;
        Ok(())
    }
}
