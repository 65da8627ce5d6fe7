//! The conformance suite of imports, on a real MariaDB or MySQL server, and refusals that are specific to it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use landfall_core::{ImportSource, Mapping, TableName};
use landfall_mysql::{MySql, Options};
use landfall_testkit::conformance::import::{self, Dialect, ImportFixture};
use landfall_testkit::servers::{fresh_database_on_mysql, fresh_mysql_database};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection};

/// A database on MariaDB, or on MySQL, which uses TLS by default.
struct MySqlFixture<const ITSELF: bool = false>(String);

impl<const ITSELF: bool> ImportFixture for MySqlFixture<ITSELF> {
    type Database = MySql;

    const DIALECT: Dialect = Dialect {
        concurrent_writers: true,
        has_implicit_order: false,
        debezium: "CREATE TABLE outbox (
            id CHAR(36) NOT NULL PRIMARY KEY, aggregatetype VARCHAR(255) NOT NULL, aggregateid VARCHAR(255) NOT NULL,
            type VARCHAR(255) NOT NULL, payload JSON)",
        auto_increment: "BIGINT NOT NULL AUTO_INCREMENT UNIQUE",
        uuid: "CHAR(36)",
        text: "VARCHAR(255)",
        payloads: &[
            ("TEXT CHARACTER SET utf8mb4", "'grüße'", "grüße".as_bytes()),
            ("VARCHAR(20) CHARACTER SET latin1", "'grüße'", "grüße".as_bytes()),
            ("JSON", r#"'{"a": [1]}'"#, br#"{"a": [1]}"#),
            ("LONGBLOB", "x'00ff27'", &[0, 255, 39]),
            ("VARBINARY(20)", "x'00ff27'", &[0, 255, 39]),
            ("TEXT", "NULL", b""),
        ],
        ids: &[
            ("CHAR(36)", "'018F3D2E-0000-7000-8000-000000000001'", Some("018f3d2e-0000-7000-8000-000000000001")),
            ("BINARY(16)", "x'018f3d2e000070008000000000000001'", Some("018f3d2e-0000-7000-8000-000000000001")),
            ("BIGINT", "-17", None),
            // Beyond the precision of a floating-point number.
            ("BIGINT UNSIGNED", "18446744073709551615", None),
            ("VARCHAR(40)", "'order-17'", None),
        ],
        marks: &["TIMESTAMP(6) NULL", "DATETIME", "VARCHAR(40)", "BOOLEAN NOT NULL DEFAULT FALSE", "INT"],
        no_payload: Some("INT"),
    };

    async fn create() -> Option<Self> {
        Some(Self(if ITSELF { fresh_database_on_mysql().await? } else { fresh_mysql_database().await? }))
    }

    async fn open(&self) -> MySql {
        let options = Options { max_connections: 8, ..Options::default() };
        MySql::connect(&self.0, options).await.expect("the server answers")
    }

    async fn execute(&self, connection: &mut MySqlConnection, statement: &str) {
        sqlx::query(AssertSqlSafe(statement)).execute(connection).await.expect("the statement runs");
    }

    async fn kill_connections(&self) {
        let mut connection = MySqlConnection::connect(&self.0).await.expect("the server answers");
        let others = "SELECT CAST(id AS SIGNED) FROM information_schema.processlist
            WHERE db = DATABASE() AND id <> CONNECTION_ID()";
        let others: Vec<i64> = sqlx::query_scalar(others).fetch_all(&mut connection).await.expect("a list");
        for other in others {
            // It may have ended meanwhile.
            let _ = sqlx::raw_sql(AssertSqlSafe(format!("KILL {other}"))).execute(&mut connection).await;
        }
        connection.close().await.expect("the connection is closed");
    }

    async fn count(&self, connection: &mut MySqlConnection, query: &str) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(query)).fetch_one(connection).await.expect("the query runs")
    }
}

landfall_testkit::import_conformance!(MySqlFixture);

/// A connection whose caller was cancelled also returns to the pool over TLS, where the driver waits for the server
/// before it closes a connection.
#[tokio::test(flavor = "multi_thread")]
async fn cancelled_import_over_tls_neither_loses_nor_duplicates() {
    let case = import::faults::cancelled_import_loses_and_doubles_nothing;
    import::run::<MySqlFixture<true>, _>(case).await;
}

#[tokio::test]
async fn missing_import_privileges_are_reported() {
    let Some(fixture) = <MySqlFixture>::create().await else { return };
    let owner = fixture.open().await;
    sqlx::query(<MySqlFixture>::DIALECT.debezium).execute(owner.pool()).await.unwrap();
    // Users are global to the server, so this one is named after the database; a name has at most 32 characters.
    let name: String =
        sqlx::query_scalar("SELECT CONCAT('clerk_', RIGHT(DATABASE(), 20))").fetch_one(owner.pool()).await.unwrap();
    let run = async |statement: String| {
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(owner.pool()).await.unwrap();
    };
    run(format!("CREATE USER '{name}'@'%' IDENTIFIED BY 'pass'; GRANT SELECT ON outbox TO '{name}'@'%'")).await;
    let target: sqlx::mysql::MySqlConnectOptions = fixture.0.parse().unwrap();
    let pool = sqlx::MySqlPool::connect_with(target.username(&name).password("pass")).await.unwrap();
    let clerk = MySql::from_pool(pool, Options::default());
    let mapping = Mapping::debezium(TableName::new("outbox").unwrap()).unwrap();
    let refused = clerk.prepare_import(mapping.clone()).await.err().expect("refused").to_string();
    assert!(refused.contains("this user cannot delete from outbox"), "{refused}");
    run(format!("GRANT DELETE ON outbox TO '{name}'@'%'")).await;
    clerk.prepare_import(mapping).await.unwrap();
    run(format!("DROP USER '{name}'@'%'")).await;
}

#[tokio::test]
async fn import_requires_a_unique_id() {
    let Some(fixture) = <MySqlFixture>::create().await else { return };
    let database = fixture.open().await;
    for (name, id) in [
        ("no_index", "id CHAR(36) NOT NULL"),
        ("nullable", "id CHAR(36) UNIQUE"),
        ("several", "id CHAR(36) NOT NULL, n INT, UNIQUE (id, n)"),
        ("prefix", "id CHAR(36) NOT NULL, UNIQUE (id(8))"),
    ] {
        let table =
            format!("CREATE TABLE {name} (aggregatetype TEXT, aggregateid TEXT, type TEXT, payload TEXT, {id})");
        sqlx::query(AssertSqlSafe(table)).execute(database.pool()).await.unwrap();
        let mapping = Mapping::debezium(TableName::new(name).unwrap()).unwrap();
        let refused = database.prepare_import(mapping).await.err().expect("refused").to_string();
        assert!(refused.contains("must be NOT NULL and have a unique index of its own"), "{name}: {refused}");
    }
}
