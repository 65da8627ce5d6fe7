//! SQLite with one planted bug, implemented as a trigger that corrupts what the correct adapter writes.

use std::time::Duration;

use landfall_core::adapter::DatabaseCapabilities;
use landfall_core::{Key, TopicName};
use landfall_sqlite::{Options, Sqlite};
use landfall_testkit::conformance::database::{AuditRow, DatabaseFixture, Effect};
use sqlx::SqliteConnection;
use tempfile::TempDir;

/// The bugs by name. The first entry has no bug.
pub(crate) const BUGS: &[(&str, &str)] = &[
    ("nothing", "SELECT 1"),
    (
        "inbox does not deduplicate",
        "CREATE TRIGGER bug AFTER INSERT ON landfall_inbox BEGIN
            DELETE FROM landfall_inbox WHERE message_id = NEW.message_id; END",
    ),
    (
        "no key is held",
        "CREATE TRIGGER bug AFTER INSERT ON landfall_held_key BEGIN DELETE FROM landfall_held_key; END",
    ),
    (
        "held key is never freed",
        "CREATE TRIGGER bug BEFORE DELETE ON landfall_held_key BEGIN SELECT raise(IGNORE); END",
    ),
    (
        "one message in three is dropped",
        "CREATE TRIGGER bug BEFORE INSERT ON landfall_outbox WHEN NEW.sequence % 3 = 2 BEGIN SELECT raise(IGNORE); END",
    ),
    (
        "payload is truncated",
        "CREATE TRIGGER bug AFTER INSERT ON landfall_outbox BEGIN
            UPDATE landfall_outbox SET payload = substr(payload, 1, 3) WHERE id = NEW.id; END",
    ),
    (
        "published row is not removed",
        "CREATE TRIGGER bug BEFORE DELETE ON landfall_outbox BEGIN SELECT raise(IGNORE); END",
    ),
    (
        "published rows are not counted",
        "CREATE TRIGGER bug BEFORE UPDATE ON landfall_outbox_published BEGIN SELECT raise(IGNORE); END",
    ),
    (
        "retry has no backoff",
        "CREATE TRIGGER bug AFTER UPDATE OF next_attempt_at ON landfall_outbox BEGIN
            UPDATE landfall_outbox SET next_attempt_at = NULL WHERE id = NEW.id; END",
    ),
    (
        "redriven message moves to the end",
        "CREATE TRIGGER bug AFTER INSERT ON landfall_outbox WHEN NEW.id < (SELECT max(id) FROM landfall_outbox) BEGIN
            UPDATE landfall_outbox SET id = (SELECT max(id) + 1 FROM landfall_outbox) WHERE id = NEW.id; END",
    ),
    (
        "epoch does not grow",
        "CREATE TRIGGER bug AFTER UPDATE ON landfall_lease WHEN NEW.epoch <> OLD.epoch BEGIN
            UPDATE landfall_lease SET epoch = OLD.epoch WHERE name = NEW.name; END",
    ),
    (
        "lease is not released",
        "CREATE TRIGGER bug BEFORE UPDATE ON landfall_lease WHEN NEW.holder IS NULL BEGIN SELECT raise(IGNORE); END",
    ),
    (
        "lease expires at once",
        "CREATE TRIGGER bug AFTER INSERT ON landfall_lease BEGIN
            UPDATE landfall_lease SET expires_at = 0 WHERE name = NEW.name; END",
    ),
    (
        "waiting letter is marked done",
        "CREATE TRIGGER bug AFTER INSERT ON landfall_dead_letter WHEN NEW.status = 'waiting' BEGIN
            UPDATE landfall_dead_letter SET status = 'done' WHERE id = NEW.id; END",
    ),
    (
        "failed redrive is redriven again",
        "CREATE TRIGGER bug AFTER UPDATE ON landfall_dead_letter WHEN OLD.status = 'redriving' AND NEW.status = 'parked'
            BEGIN UPDATE landfall_dead_letter SET status = 'redriving' WHERE id = NEW.id; END",
    ),
    (
        "skipped message holds its key",
        "CREATE TRIGGER bug AFTER INSERT ON landfall_dead_letter WHEN NOT NEW.holds_key AND NEW.key IS NOT NULL BEGIN
            INSERT INTO landfall_held_key (consumer_group, topic, key) VALUES ('', NEW.topic, NEW.key); END",
    ),
    (
        "skipped message is marked as holding its key",
        "CREATE TRIGGER bug AFTER INSERT ON landfall_dead_letter WHEN NOT NEW.holds_key BEGIN
            UPDATE landfall_dead_letter SET holds_key = 1 WHERE id = NEW.id; END",
    ),
    (
        "manual retry changes nothing",
        "CREATE TRIGGER bug AFTER UPDATE OF next_attempt_at ON landfall_outbox
            WHEN NEW.attempts = OLD.attempts AND NEW.next_attempt_at < OLD.next_attempt_at BEGIN
            UPDATE landfall_outbox SET next_attempt_at = OLD.next_attempt_at WHERE id = NEW.id; END",
    ),
    (
        "manual retry is not audited",
        "CREATE TRIGGER bug BEFORE INSERT ON landfall_audit WHEN NEW.action = 'retry' BEGIN SELECT raise(IGNORE); END",
    ),
    (
        "manual park loses its reason",
        "CREATE TRIGGER bug AFTER INSERT ON landfall_dead_letter WHEN NEW.error_code = 'PARKED_BY_HAND' BEGIN
            UPDATE landfall_dead_letter SET error = '' WHERE id = NEW.id; END",
    ),
    (
        "sent messages are not kept",
        "CREATE TRIGGER bug BEFORE INSERT ON landfall_outbox_sent BEGIN SELECT raise(IGNORE); END",
    ),
    (
        "inbox ids expire at once",
        "CREATE TRIGGER bug AFTER INSERT ON landfall_inbox BEGIN
            UPDATE landfall_inbox SET handled_at = 0 WHERE message_id = NEW.message_id; END",
    ),
    (
        "done letters expire at once",
        "CREATE TRIGGER bug AFTER UPDATE ON landfall_dead_letter WHEN NEW.status = 'done' BEGIN
            UPDATE landfall_dead_letter SET done_at = 0 WHERE id = NEW.id; END",
    ),
    (
        "audit is removed with its letter",
        "CREATE TRIGGER bug AFTER DELETE ON landfall_dead_letter BEGIN
            DELETE FROM landfall_audit WHERE dead_letter_id = OLD.id; END",
    ),
    (
        "delayed message is due at once",
        "CREATE TRIGGER bug AFTER INSERT ON landfall_dead_letter WHEN NEW.status = 'delayed' BEGIN
            UPDATE landfall_dead_letter SET retry_at = 0 WHERE id = NEW.id; END",
    ),
    (
        "second delay parks the message",
        "CREATE TRIGGER bug AFTER UPDATE ON landfall_dead_letter WHEN NEW.status = 'delayed' BEGIN
            UPDATE landfall_dead_letter SET status = 'parked' WHERE id = NEW.id; END",
    ),
    (
        "sequences expire at once",
        "CREATE TRIGGER bug AFTER INSERT ON landfall_sequence BEGIN
            UPDATE landfall_sequence SET since = 0 WHERE key = NEW.key; END",
    ),
    ("nothing is audited", "CREATE TRIGGER bug BEFORE INSERT ON landfall_audit BEGIN SELECT raise(IGNORE); END"),
];

/// A database with the bug number `BUG`, a type parameter because a fixture is created without arguments.
pub(crate) struct Planted<const BUG: usize> {
    folder: TempDir,
}

impl<const BUG: usize> DatabaseFixture for Planted<BUG> {
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
        sqlx::query(table).execute(&mut *connection).await.unwrap();
        sqlx::query(BUGS[BUG].1).execute(connection).await.unwrap();
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
        let select = "SELECT message_id, key, sequence FROM effects ORDER BY n";
        let rows: Vec<(String, Option<String>, Option<i64>)> =
            sqlx::query_as(select).fetch_all(connection).await.unwrap();
        rows.into_iter()
            .map(|(message_id, key, sequence)| Effect { message_id: message_id.parse().unwrap(), key, sequence })
            .collect()
    }

    async fn audit(&self, connection: &mut SqliteConnection) -> Vec<AuditRow> {
        let select = "SELECT actor, action, message_id FROM landfall_audit ORDER BY id";
        let rows: Vec<(String, String, String)> = sqlx::query_as(select).fetch_all(connection).await.unwrap();
        rows.into_iter()
            .map(|(actor, action, id)| AuditRow { actor, action, message_id: id.parse().unwrap() })
            .collect()
    }

    async fn steal_leases(&self, connection: &mut SqliteConnection) {
        let take = "UPDATE landfall_lease SET holder = 'other-holder', epoch = epoch + 1";
        sqlx::query(take).execute(connection).await.unwrap();
    }

    async fn execute_text(&self, connection: &mut SqliteConnection, statement: &str) -> Result<(), String> {
        let statement = statement.replace("{key}", "key");
        let executed = sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(connection).await;
        executed.map(drop).map_err(|error| error.to_string())
    }

    const VERSION_1_ROWS: &'static str = "";

    async fn misdate_leases(&self, connection: &mut SqliteConnection) {
        let misdate = "UPDATE landfall_lease SET expires_at = expires_at + 86400000";
        sqlx::query(misdate).execute(connection).await.unwrap();
    }

    async fn insert_unreadable(&self, connection: &mut SqliteConnection, topic: &TopicName, key: &Key) {
        let insert = "INSERT INTO landfall_outbox (topic, key, headers, payload) VALUES (?1, ?2, ?3, x'00')";
        let headers = r#"{"x": "a\nb"}"#;
        sqlx::query(insert).bind(topic.as_str()).bind(key.as_str()).bind(headers).execute(connection).await.unwrap();
    }
}
