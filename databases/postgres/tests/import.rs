//! What every database must do with an outbox that is already there, on a real PostgreSQL server.

#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use landfall_postgres::{Options, Postgres};
use landfall_testkit::conformance::import::{Dialect, ImportFixture};
use landfall_testkit::servers::fresh_postgres_database;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

struct PostgresFixture(String);

impl ImportFixture for PostgresFixture {
    type Database = Postgres;

    const DIALECT: Dialect = Dialect {
        concurrent_writers: true,
        orders_by_itself: true,
        debezium: "CREATE TABLE outbox (
            id uuid NOT NULL PRIMARY KEY, aggregatetype character varying(255) NOT NULL,
            aggregateid character varying(255) NOT NULL, type character varying(255) NOT NULL, payload jsonb)",
        counting: "bigint GENERATED ALWAYS AS IDENTITY",
        uuid: "uuid",
        text: "text",
        payloads: &[
            ("text", "'grüße'", "grüße".as_bytes()),
            ("varchar(20)", "'x'", b"x"),
            ("json", r#"'{"a":  [1]}'"#, br#"{"a":  [1]}"#),
            ("jsonb", r#"'{"a":  [1]}'"#, br#"{"a": [1]}"#),
            ("bytea", r"'\x00ff27'", &[0, 255, 39]),
            ("text", "NULL", b""),
        ],
        ids: &[
            ("uuid", "'018F3D2E-0000-7000-8000-000000000001'", Some("018f3d2e-0000-7000-8000-000000000001")),
            ("text", "'018F3D2E-0000-7000-8000-000000000001'", Some("018f3d2e-0000-7000-8000-000000000001")),
            ("bytea", r"'\x018f3d2e000070008000000000000001'", Some("018f3d2e-0000-7000-8000-000000000001")),
            ("bigint", "17", None),
            ("text", "'order-17'", None),
            ("numeric", "17.5", None),
        ],
        marks: &[
            "timestamptz",
            "timestamp",
            "date",
            "text",
            "boolean NOT NULL DEFAULT false",
            "boolean",
            "integer NOT NULL DEFAULT 0",
        ],
        no_payload: Some("integer"),
    };

    async fn create() -> Option<Self> {
        Some(Self(fresh_postgres_database().await?))
    }

    async fn open(&self) -> Postgres {
        let options = Options { max_connections: 8, ..Options::default() };
        Postgres::connect(&self.0, options).await.expect("the server answers")
    }

    async fn execute(&self, connection: &mut PgConnection, statement: &str) {
        sqlx::query(AssertSqlSafe(statement)).execute(connection).await.expect("the statement runs");
    }

    async fn kill_connections(&self) {
        let mut connection = PgConnection::connect(&self.0).await.expect("the server answers");
        let statement = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid()";
        sqlx::query(statement).execute(&mut connection).await.expect("the others are gone");
        connection.close().await.expect("the connection is closed");
    }

    async fn count(&self, connection: &mut PgConnection, query: &str) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(query)).fetch_one(connection).await.expect("the query runs")
    }
}

landfall_testkit::import_conformance!(PostgresFixture);
