//! The conformance suite of imports on SQLite, and refusals that are specific to it.

use landfall_core::{ErrorKind, ImportSource, Mapping, TableName};
use landfall_sqlite::{Options, Sqlite};
use landfall_testkit::conformance::import::{Dialect, ImportFixture};
use sqlx::{AssertSqlSafe, SqliteConnection};
use tempfile::TempDir;

struct SqliteFixture(TempDir);

impl ImportFixture for SqliteFixture {
    type Database = Sqlite;

    const DIALECT: Dialect = Dialect {
        concurrent_writers: false,
        has_implicit_order: true,
        debezium: "CREATE TABLE outbox (
            id TEXT NOT NULL PRIMARY KEY, aggregatetype TEXT NOT NULL, aggregateid TEXT NOT NULL, type TEXT NOT NULL,
            payload TEXT)",
        auto_increment: "INTEGER PRIMARY KEY AUTOINCREMENT",
        uuid: "TEXT",
        text: "TEXT",
        payloads: &[
            ("TEXT", "'grüße'", "grüße".as_bytes()),
            ("BLOB", "x'00ff27'", &[0, 255, 39]),
            ("JSON", r#"'{"a": [1]}'"#, br#"{"a": [1]}"#),
            ("INTEGER", "17", b"17"),
            ("", "NULL", b""),
        ],
        ids: &[
            ("TEXT", "'018F3D2E-0000-7000-8000-000000000001'", Some("018f3d2e-0000-7000-8000-000000000001")),
            ("BLOB", "x'018f3d2e000070008000000000000001'", Some("018f3d2e-0000-7000-8000-000000000001")),
            ("INTEGER", "17", None),
            ("TEXT", "'order-17'", None),
            ("BLOB", "x'00ff'", None),
        ],
        marks: &["TEXT", "TIMESTAMP", "INTEGER NOT NULL DEFAULT 0", "BOOLEAN", ""],
        no_payload: None,
    };

    async fn create() -> Option<Self> {
        Some(Self(TempDir::new().expect("a folder")))
    }

    async fn open(&self) -> Sqlite {
        let url = format!("sqlite:{}", self.0.path().join("landfall.db").display());
        Sqlite::open(&url, Options::default()).await.expect("the file opens")
    }

    async fn execute(&self, connection: &mut SqliteConnection, statement: &str) {
        sqlx::query(AssertSqlSafe(statement)).execute(connection).await.expect("the statement runs");
    }

    async fn kill_connections(&self) {}

    async fn count(&self, connection: &mut SqliteConnection, query: &str) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(query)).fetch_one(connection).await.expect("the query runs")
    }
}

landfall_testkit::import_conformance!(
    SqliteFixture,
    without concurrent_writers: "no `concurrent_writers`: SQLite has one writer at a time"
);

#[tokio::test]
async fn import_without_rowid_or_with_a_schema_is_refused() {
    let fixture = SqliteFixture::create().await.unwrap();
    let database = fixture.open().await;
    let table = "CREATE TABLE outbox (id TEXT PRIMARY KEY, payload TEXT) WITHOUT ROWID";
    sqlx::query(table).execute(database.pool()).await.unwrap();
    for name in ["outbox", "main.outbox"] {
        let mapping = Mapping::debezium(TableName::new(name).unwrap()).unwrap();
        let refused = database.prepare_import(mapping).await.err().expect("refused");
        assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
    }
}
