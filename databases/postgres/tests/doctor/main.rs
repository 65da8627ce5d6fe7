//! The doctor on PostgreSQL: every finding is provoked once on a real server, and a server as created by `initdb` has
//! none. `server.rs` starts its own server, with every setting wrong.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod pooler;
mod server;
mod tables;

use std::time::Duration;

use landfall_core::adapter::Demands;
use landfall_core::{Diagnose, Finding, Rank, Schema, Span};
use landfall_postgres::{Options, Postgres};
use landfall_testkit::servers::{PostgresServer, postgres};
use sqlx::AssertSqlSafe;
use sqlx::postgres::PgPoolOptions;

const SOON: Duration = Duration::from_secs(60);

async fn diagnose(database: &Postgres) -> Vec<Finding> {
    database.diagnose(&Demands { window: Span::Forever }).await.unwrap()
}

fn checks(findings: &[Finding]) -> Vec<(&'static str, Rank)> {
    findings.iter().map(|finding| (finding.check, finding.rank)).collect()
}

/// Returns a migrated database on the private server that these tests share: another server may have findings.
async fn migrated() -> Option<Postgres> {
    let database = fresh(postgres().await?).await;
    database.migrate().await.unwrap();
    Some(database)
}

async fn fresh(server: &PostgresServer) -> Postgres {
    let url = server.fresh_database().await.unwrap();
    Postgres::connect(&url, Options { max_connections: 4, ..Options::default() }).await.unwrap()
}

async fn run(database: &Postgres, script: &str) {
    sqlx::raw_sql(AssertSqlSafe(script)).execute(database.pool()).await.unwrap();
}

/// Returns the same database through connections that start with the statement `first`.
async fn after(database: &Postgres, first: &'static str) -> Postgres {
    let pool = PgPoolOptions::new().max_connections(2).after_connect(move |connection, _| {
        Box::pin(async move { sqlx::raw_sql(first).execute(connection).await.map(drop) })
    });
    let pool = pool.connect_with((*database.pool().connect_options()).clone()).await.unwrap();
    Postgres::from_pool(pool, Options::default())
}

/// Returns the same database with a server clock that is an hour ahead.
async fn an_hour_later(database: &Postgres) -> Postgres {
    run(
        database,
        "CREATE SCHEMA shifted;
         CREATE FUNCTION shifted.clock_timestamp() RETURNS timestamptz LANGUAGE sql
             AS 'SELECT pg_catalog.clock_timestamp() + interval ''1 hour''';",
    )
    .await;
    after(database, "SET search_path = shifted, public, pg_catalog").await
}

#[tokio::test(flavor = "multi_thread")]
async fn default_postgres_server_has_no_findings() {
    let Some(server) = postgres().await else { return };
    let database = fresh(server).await;
    let found = diagnose(&database).await;
    assert_eq!(checks(&found), [("postgres.schema", Rank::Loss)]);
    assert_eq!(found[0].mend, "landfall migrate");
    database.migrate().await.unwrap();
    assert_eq!(diagnose(&database).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn asynchronous_commit_is_reported_wherever_it_is_set() {
    let Some(database) = migrated().await else { return };
    let of_session = after(&database, "SET synchronous_commit = off").await;
    let found = diagnose(&of_session).await;
    assert_eq!(checks(&found), [("postgres.synchronous-commit", Rank::Loss)]);
    assert!(found[0].mend.contains("what opens connections"), "{}", found[0].mend);

    // The writers' role is not the doctor's, and no session of the doctor has the setting.
    let name: String = sqlx::query_scalar("SELECT current_database()::text").fetch_one(database.pool()).await.unwrap();
    let role = format!("writer_of_{name}");
    run(&database, &format!("CREATE ROLE {role}; ALTER ROLE {role} IN DATABASE {name} SET synchronous_commit = off"))
        .await;
    let found = diagnose(&database).await;
    assert_eq!(checks(&found), [("postgres.synchronous-commit", Rank::Loss)]);
    assert_eq!(found[0].about, format!("role {role} in database {name}"));
    run(&database, &found[0].mend).await;
    assert_eq!(diagnose(&database).await, [], "the suggested fix works");
}

#[tokio::test(flavor = "multi_thread")]
async fn clock_skew_is_reported_with_its_size() {
    let Some(database) = migrated().await else { return };
    let found = diagnose(&an_hour_later(&database).await).await;
    // With such a clock, the transactions of other tests are old as well.
    let skew = found.iter().find(|finding| finding.check == "postgres.clock-skew").unwrap();
    assert_eq!(skew.rank, Rank::Latency);
    assert!(skew.what.contains("s ahead of this machine's"), "{}", skew.what);
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_monitoring_privilege_is_reported_with_its_grant() {
    let Some(database) = migrated().await else { return };
    let name: String = sqlx::query_scalar("SELECT current_database()::text").fetch_one(database.pool()).await.unwrap();
    let role = format!("clerk_of_{name}");
    run(&database, &format!("CREATE ROLE {role} LOGIN; GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")).await;
    let target = (*database.pool().connect_options()).clone().username(&role);
    let clerk = Postgres::from_pool(PgPoolOptions::new().connect_with(target).await.unwrap(), Options::default());
    let found = diagnose(&clerk).await;
    assert_eq!(checks(&found), [("postgres.sight", Rank::Latency)]);
    run(&database, &found[0].mend).await;
    assert_eq!(diagnose(&clerk).await, []);
}
