//! Migrations: numbered, applied in one transaction under an advisory lock.

use async_trait::async_trait;
use landfall_core::adapter::SchemaState;
use landfall_core::{Database, Result, Schema};
use sqlx::{AssertSqlSafe, PgConnection};

use crate::{Postgres, statements};

/// Migration `n` upgrades the tables from version `n - 1` to `n`. Only its number is recorded, so comments may change.
const MIGRATIONS: &[&str] = &[
    concat!(
        include_str!("../migrations/0001_spine.sql"),
        "\n",
        include_str!("../migrations/0001_sequence.sql"),
        "\n",
        include_str!("../migrations/0001_read.sql"),
        "\n",
        include_str!("../migrations/0001_settle.sql"),
        "\n",
        include_str!("../migrations/0001_view.sql"),
        "\n",
        include_str!("../migrations/0001_rotate.sql"),
        "\n",
        include_str!("../migrations/0001_claim.sql"),
        "\n",
        include_str!("../migrations/0001_restore.sql"),
    ),
    concat!(
        include_str!("../migrations/0002_lease_ttl.sql"),
        "\n",
        include_str!("../migrations/0002_enqueued_id.sql"),
        "\n",
        include_str!("../migrations/0002_delivery.sql"),
        "\n",
        include_str!("../migrations/0002_dead_letter.sql"),
        "\n",
        include_str!("../migrations/0002_payload_text.sql"),
        "\n",
        include_str!("../migrations/0002_settle.sql"),
        "\n",
        include_str!("../migrations/0002_view.sql"),
        "\n",
        include_str!("../migrations/0002_rotate.sql"),
        "\n",
        include_str!("../migrations/0002_claim.sql"),
    ),
    concat!(
        include_str!("../migrations/0003_half_message.sql"),
        "\n",
        include_str!("../migrations/0003_barrier.sql"),
        "\n",
        include_str!("../migrations/0003_rotate.sql"),
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
        include_str!("../migrations/0003_dead_letter_key.sql"),
        "\n",
        include_str!("../migrations/0003_payload_value.sql"),
    ),
];

const SCHEMA_TABLE: &str = "\
-- The migrations that were applied to these tables.
CREATE TABLE {p}schema (
    version    bigint      PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT now()
);
";

#[async_trait]
impl Schema for Postgres {
    fn ddl(&self) -> String {
        let prefix = self.prefix();
        let mut text = String::from("BEGIN;\n\n");
        if let Some(schema) = prefix.schema() {
            text.push_str(&format!("CREATE SCHEMA IF NOT EXISTS {schema};\n\n"));
        }
        text.push_str(&statements::fill_prefix(SCHEMA_TABLE, prefix));
        for (version, migration) in (1..).zip(MIGRATIONS) {
            text.push('\n');
            text.push_str(&statements::fill_prefix(migration, prefix));
            text.push_str(&format!("\nINSERT INTO {}schema (version) VALUES ({version});\n", prefix.as_str()));
        }
        text.push_str("\nCOMMIT;\n");
        text
    }

    async fn state(&self) -> Result<SchemaState> {
        let mut session = self.session().await?;
        let found = self.found(session.connection()).await?;
        session.finish().await.map_err(self.could_not("read the schema's version"))?;
        Ok(found)
    }

    async fn migrate(&self) -> Result<bool> {
        let mut transaction = self.begin().await?;
        let lock = format!("landfall migrate {}", self.prefix());
        sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))")
            .persistent(self.may_prepare())
            .bind(lock)
            .execute(&mut *transaction)
            .await
            .map_err(self.could_not("lock the schema"))?;
        let state = self.found(&mut transaction).await?;
        state.refuse_newer()?;
        if state.found == state.expected {
            return Ok(false);
        }
        if state.found == 0 {
            self.prepare(&mut transaction).await?;
        }
        for (version, migration) in (1..).zip(MIGRATIONS).skip_while(|(version, _)| *version <= state.found) {
            self.run_script(&mut transaction, &statements::fill_prefix(migration, self.prefix())).await?;
            self.query(&self.statements().schema_record)
                .bind(version)
                .execute(&mut *transaction)
                .await
                .map_err(self.could_not("record the schema's version"))?;
        }
        self.commit(transaction).await?;
        Ok(true)
    }

    async fn check(&self) -> Result<()> {
        self.state().await?.require_current()
    }
}

impl Postgres {
    async fn found(&self, connection: &mut PgConnection) -> Result<SchemaState> {
        let expected = MIGRATIONS.len() as i64;
        let found = if self.exists(connection).await? {
            self.query_scalar(&self.statements().schema_version)
                .fetch_one(connection)
                .await
                .map_err(self.could_not("read the schema's version"))?
        } else {
            0
        };
        Ok(SchemaState { found, expected })
    }

    async fn exists(&self, connection: &mut PgConnection) -> Result<bool> {
        sqlx::query_scalar("SELECT to_regclass($1) IS NOT NULL")
            .persistent(self.may_prepare())
            .bind(self.statements().schema_name.as_str())
            .fetch_one(connection)
            .await
            .map_err(self.could_not("find the tables"))
    }

    /// Creates the schema, if the prefix names one, and the table of versions. `CREATE SCHEMA IF NOT EXISTS` requires
    /// the privilege to create schemas even if the schema exists, so existence is checked first.
    async fn prepare(&self, connection: &mut PgConnection) -> Result<()> {
        if let Some(schema) = self.prefix().schema() {
            let exists: bool = sqlx::query_scalar("SELECT to_regnamespace($1) IS NOT NULL")
                .persistent(self.may_prepare())
                .bind(schema)
                .fetch_one(&mut *connection)
                .await
                .map_err(self.could_not("find the schema"))?;
            if !exists {
                self.run_script(connection, &format!("CREATE SCHEMA {schema}")).await?;
            }
        }
        if !self.exists(connection).await? {
            self.run_script(connection, &statements::fill_prefix(SCHEMA_TABLE, self.prefix())).await?;
        }
        Ok(())
    }

    async fn run_script(&self, connection: &mut PgConnection, script: &str) -> Result<()> {
        sqlx::raw_sql(AssertSqlSafe(script)).execute(connection).await.map_err(self.could_not("migrate the tables"))?;
        Ok(())
    }
}
