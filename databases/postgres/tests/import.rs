//! The conformance suite of imports, on a real PostgreSQL server.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use landfall_core::{ColumnName, Holder, ImportSource, Leases, Mapping, Schema, TableName, Taken};
use landfall_postgres::{Options, Postgres};
use landfall_testkit::conformance::import::{Dialect, ImportFixture};
use landfall_testkit::servers::fresh_postgres_database;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

struct PostgresFixture(String);

impl ImportFixture for PostgresFixture {
    type Database = Postgres;

    const DIALECT: Dialect = Dialect {
        concurrent_writers: true,
        has_implicit_order: true,
        debezium: "CREATE TABLE outbox (
            id uuid NOT NULL PRIMARY KEY, aggregatetype character varying(255) NOT NULL,
            aggregateid character varying(255) NOT NULL, type character varying(255) NOT NULL, payload jsonb)",
        auto_increment: "bigint GENERATED ALWAYS AS IDENTITY",
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

fn mapping(table: &str, mark: Option<&str>) -> Mapping {
    let taken = mark.map_or(Taken::Delete, |column| Taken::Mark(ColumnName::new(column).unwrap()));
    Mapping { taken, ..Mapping::debezium(TableName::new(table).unwrap()).unwrap() }
}

#[tokio::test]
async fn missing_import_privileges_are_reported() {
    let Some(fixture) = PostgresFixture::create().await else { return };
    let owner = fixture.open().await;
    // Roles are global to the server, so this one is named after the database.
    let role: String =
        sqlx::query_scalar("SELECT 'clerk_' || current_database()").fetch_one(owner.pool()).await.unwrap();
    let table =
        "CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload text,
                 done timestamptz, since timestamptz NOT NULL DEFAULT now())";
    sqlx::raw_sql(AssertSqlSafe(format!("{table}; CREATE ROLE {role}"))).execute(owner.pool()).await.unwrap();
    let set_role = format!("SET ROLE {role}");
    let clerk = sqlx::postgres::PgPoolOptions::new()
        .after_connect(move |connection, _| {
            let set_role = set_role.clone();
            Box::pin(async move { sqlx::raw_sql(AssertSqlSafe(set_role)).execute(connection).await.map(drop) })
        })
        .connect(&fixture.0)
        .await
        .unwrap();
    let clerk = Postgres::from_pool(clerk, Options::default());
    let refusal = async |mark| {
        clerk.prepare_import(mapping("outbox", mark)).await.err().map(|error| error.to_string()).unwrap_or_default()
    };
    let grant = async |right: &str| {
        let statement = format!("GRANT {right} ON outbox TO {role}");
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(owner.pool()).await.unwrap();
    };
    assert!(refusal(None).await.contains("may not read outbox; grant SELECT"), "{}", refusal(None).await);
    grant("SELECT").await;
    assert!(refusal(None).await.contains("may not delete from outbox; grant DELETE"), "{}", refusal(None).await);
    assert!(refusal(Some("done")).await.contains("may not update done of outbox; grant UPDATE"));
    grant("UPDATE (done)").await;
    assert_eq!(refusal(Some("done")).await, "");
    grant("DELETE, UPDATE").await;
    assert_eq!(refusal(None).await, "");
    // A column that cannot be null cannot mark a row as new.
    assert!(refusal(Some("since")).await.contains("the column since of outbox is"));
    let drop_role = format!("DROP OWNED BY {role}; DROP ROLE {role}");
    sqlx::raw_sql(AssertSqlSafe(drop_role)).execute(owner.pool()).await.unwrap();
}

/// Rows of two partitions may have the same `ctid`.
#[tokio::test]
async fn partitioned_table_in_a_schema_is_imported() {
    let Some(fixture) = PostgresFixture::create().await else { return };
    let database = fixture.open().await;
    database.migrate().await.unwrap();
    let tables = "CREATE SCHEMA shop;
        CREATE TABLE shop.outbox (id uuid, aggregatetype text, aggregateid text, type text, payload text, part int)
            PARTITION BY LIST (part);
        CREATE TABLE shop.first PARTITION OF shop.outbox FOR VALUES IN (1);
        CREATE TABLE shop.second PARTITION OF shop.outbox FOR VALUES IN (2);
        INSERT INTO shop.outbox SELECT gen_random_uuid(), 'Order', n::text, 'Placed', n::text, 1 + n % 2
            FROM generate_series(1, 100) n";
    sqlx::raw_sql(tables).execute(database.pool()).await.unwrap();
    let mapping = mapping("shop.outbox", None);
    let (name, holder) = (mapping.lease_name(), Holder("mover".into()));
    let lease = database.acquire(&name, &holder, Duration::from_secs(60)).await.unwrap().unwrap();
    let import = database.prepare_import(mapping).await.unwrap();
    let mut left = 100;
    while left > 0 {
        let moved = import.import(&lease, 7).await.unwrap().moved;
        assert!(moved > 0, "{left} rows are left");
        left -= moved as i64;
        let counted: i64 =
            sqlx::query_scalar("SELECT count(*) FROM shop.outbox").fetch_one(database.pool()).await.unwrap();
        assert_eq!(counted, left);
    }
    let moved: i64 = sqlx::query_scalar("SELECT count(DISTINCT message_id) FROM landfall_outbox")
        .fetch_one(database.pool())
        .await
        .unwrap();
    assert_eq!(moved, 100);
}
