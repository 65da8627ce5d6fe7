//! The conformance suite of every database port, on a new SQLite file per case.

use std::time::Duration;

use landfall_core::adapter::DatabaseCapabilities;
use landfall_core::{Key, TopicName};
use landfall_sqlite::{Options, Sqlite};
use landfall_testkit::conformance::database::{AuditRow, DatabaseFixture, Effect};
use sqlx::SqliteConnection;
use tempfile::TempDir;

struct SqliteFixture {
    folder: TempDir,
}

impl DatabaseFixture for SqliteFixture {
    type Database = Sqlite;

    fn capabilities() -> DatabaseCapabilities {
        Sqlite::CAPABILITIES
    }

    async fn create() -> Option<Self> {
        Some(Self { folder: TempDir::new().unwrap() })
    }

    async fn open(&self) -> Sqlite {
        let file = self.folder.path().join("landfall.db");
        Sqlite::open(file.to_str().unwrap(), Options::default()).await.unwrap()
    }

    async fn open_keeping_sent(&self, time: Duration) -> Sqlite {
        let file = self.folder.path().join("landfall.db");
        Sqlite::open(file.to_str().unwrap(), Options { keep_sent: Some(time), ..Options::default() }).await.unwrap()
    }

    async fn create_effects(&self, connection: &mut SqliteConnection) {
        let table =
            "CREATE TABLE effects (n INTEGER PRIMARY KEY, message_id TEXT NOT NULL, key TEXT, sequence INTEGER)";
        sqlx::query(table).execute(connection).await.unwrap();
    }

    async fn insert_effect(&self, connection: &mut SqliteConnection, effect: &Effect) {
        sqlx::query("INSERT INTO effects (message_id, key, sequence) VALUES (?1, ?2, ?3)")
            .bind(effect.message_id.to_string())
            .bind(&effect.key)
            .bind(effect.sequence)
            .execute(connection)
            .await
            .unwrap();
    }

    async fn effects(&self, connection: &mut SqliteConnection) -> Vec<Effect> {
        let rows: Vec<(String, Option<String>, Option<i64>)> =
            sqlx::query_as("SELECT message_id, key, sequence FROM effects ORDER BY n")
                .fetch_all(connection)
                .await
                .unwrap();
        rows.into_iter()
            .map(|(message_id, key, sequence)| Effect { message_id: message_id.parse().unwrap(), key, sequence })
            .collect()
    }

    async fn audit(&self, connection: &mut SqliteConnection) -> Vec<AuditRow> {
        let rows: Vec<(String, String, String)> =
            sqlx::query_as("SELECT actor, action, message_id FROM landfall_audit ORDER BY id")
                .fetch_all(connection)
                .await
                .unwrap();
        rows.into_iter()
            .map(|(actor, action, id)| AuditRow { actor, action, message_id: id.parse().unwrap() })
            .collect()
    }

    async fn steal_leases(&self, connection: &mut SqliteConnection) {
        let take = "UPDATE landfall_lease SET holder = 'another relay', epoch = epoch + 1";
        sqlx::query(take).execute(connection).await.unwrap();
    }

    async fn execute_text(&self, connection: &mut SqliteConnection, statement: &str) -> Result<(), String> {
        let statement = statement.replace("{key}", "key");
        let executed = sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(connection).await;
        executed.map(drop).map_err(|error| error.to_string())
    }

    const VERSION_1_ROWS: &'static str = "
        INSERT INTO landfall_outbox (topic, key, payload) VALUES ('orders', 'a', CAST('a1' AS BLOB));
        INSERT INTO landfall_outbox (topic, key, payload, attempts, next_attempt_at, last_error)
            VALUES ('orders', 'b', CAST('b1' AS BLOB), 2, 1, 'FULL: full');
        INSERT INTO landfall_outbox (topic, key, payload) VALUES ('orders', 'b', CAST('b2' AS BLOB));
        INSERT INTO landfall_outbox (topic, key, payload) VALUES ('orders', 'c', CAST('c1' AS BLOB));
        INSERT INTO landfall_dead_letter (message_id, topic, key, kind, mode, headers, created_at, outbox_id, status,
            error_code, error, attempts, payload)
            SELECT message_id, topic, key, kind, mode, headers, created_at, id, 'parked', 'FULL', 'full', 3, payload
            FROM landfall_outbox WHERE key = 'c';
        DELETE FROM landfall_outbox WHERE key = 'c';
        INSERT INTO landfall_held_key (consumer_group, topic, key) VALUES ('', 'orders', 'c');
        INSERT INTO landfall_outbox (topic, key, payload) VALUES ('orders', 'c', CAST('c2' AS BLOB));
        INSERT INTO landfall_lease (name, holder, epoch, expires_at)
            VALUES ('outbox/0', 'old', 1, (unixepoch() + 86400) * 1000)";

    async fn misdate_leases(&self, connection: &mut SqliteConnection) {
        let misdate = "UPDATE landfall_lease SET expires_at = expires_at + 86400000";
        sqlx::query(misdate).execute(connection).await.unwrap();
    }

    async fn insert_unreadable(&self, connection: &mut SqliteConnection, topic: &TopicName, key: &Key) {
        sqlx::query("INSERT INTO landfall_outbox (topic, key, headers, payload) VALUES (?1, ?2, ?3, x'00')")
            .bind(topic.as_str())
            .bind(key.as_str())
            .bind(r#"{"x": "a\nb"}"#)
            .execute(connection)
            .await
            .unwrap();
    }
}

landfall_testkit::database_conformance!(
    SqliteFixture,
    without concurrent_writers: "no `concurrent_writers`: SQLite has one writer at a time",
    competing_relays: "no `competing_relays`: SQLite has no row locks"
);

mod idempotency {
    use landfall_testkit::conformance::idempotency::OfDatabase;

    use super::*;

    landfall_testkit::idempotency_conformance!(OfDatabase<SqliteFixture>);
}
