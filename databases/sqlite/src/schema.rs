//! Migrations: numbered, applied in one transaction under the write lock.

use async_trait::async_trait;
use landfall_core::adapter::SchemaState;
use landfall_core::{Database, Error, ErrorKind, Result, Schema};
use sqlx::{AssertSqlSafe, SqliteConnection};

use crate::Sqlite;
use crate::statements::fill;

/// Migration `n` upgrades the tables from version `n - 1` to `n`. The statements of a released migration never change.
/// Only its number is recorded, so comments may.
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

const VERSIONS: &str = "CREATE TABLE IF NOT EXISTS {p}schema (
    version    INTEGER PRIMARY KEY,
    applied_at INTEGER NOT NULL DEFAULT ({now})
);";

#[async_trait]
impl Schema for Sqlite {
    fn ddl(&self) -> String {
        format!("BEGIN IMMEDIATE;\n\n{}\nCOMMIT;\n", self.statements_from(0))
    }

    async fn state(&self) -> Result<SchemaState> {
        let mut connection = self.inner.pool.acquire().await.map_err(self.cannot("read the schema's version"))?;
        self.state_on(&mut connection).await
    }

    async fn migrate(&self) -> Result<bool> {
        // The write lock comes first: a concurrent migration waits here, and then finds nothing to do.
        let mut transaction = self.begin().await?;
        let state = self.state_on(&mut transaction).await?;
        state.refuse_newer()?;
        if state.found == state.expected {
            return Ok(false);
        }
        let statements = AssertSqlSafe(self.statements_from(state.found));
        sqlx::raw_sql(statements).execute(&mut *transaction).await.map_err(|error| {
            let error = self.cannot("create the tables")(error);
            match error.kind() {
                // For example, a table of this name that landfall did not create.
                ErrorKind::Internal => {
                    let sentence = "the tables conflict with existing ones; choose another table prefix";
                    Error::new(ErrorKind::Schema, sentence).with_source(error)
                }
                _ => error,
            }
        })?;
        self.commit(transaction).await?;
        tracing::info!(file = %self.inner.name, from = state.found, to = state.expected, "schema migrated");
        Ok(true)
    }

    async fn check(&self) -> Result<()> {
        self.state().await?.require_current()
    }
}

impl Sqlite {
    /// Returns the statements that upgrade version `found` to this build's.
    fn statements_from(&self, found: i64) -> String {
        let mut text = format!("{VERSIONS}\n");
        for (version, migration) in (1..).zip(MIGRATIONS).filter(|(version, _)| *version > found) {
            text.push_str(&format!("\n{migration}\nINSERT INTO {{p}}schema (version) VALUES ({version});\n"));
        }
        fill(&text, &self.inner.prefix)
    }

    async fn state_on(&self, connection: &mut SqliteConnection) -> Result<SchemaState> {
        let expected = MIGRATIONS.len() as i64;
        let table = format!("{}schema", self.inner.prefix);
        let exists = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1)";
        let exists: bool = sqlx::query_scalar(exists)
            .bind(table)
            .fetch_one(&mut *connection)
            .await
            .map_err(self.cannot("read the schema's version"))?;
        if !exists {
            return Ok(SchemaState { found: 0, expected });
        }
        let found = sqlx::query_scalar(self.statements().schema_version.text())
            .fetch_one(connection)
            .await
            .map_err(self.cannot("read the schema's version"))?;
        Ok(SchemaState { found, expected })
    }
}
