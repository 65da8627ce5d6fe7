//! Connections of the pool: after a cancelled statement, and after a failover.

use std::time::Duration;

use landfall_core::{ErrorKind, OutboxQueue, Schema};
use landfall_postgres::{Options, Postgres};
use landfall_testkit::eventually;
use landfall_testkit::servers::fresh_postgres_database;

use crate::stage::{SOON, message};

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_statement_does_not_leak_a_pool_connection() {
    let Some(url) = fresh_postgres_database().await else { return };
    let database = Postgres::connect(&url, Options { max_connections: 1, ..Options::default() }).await.unwrap();
    let endless = sqlx::query("SELECT pg_sleep(3600)").execute(database.pool());
    let left = tokio::time::timeout(Duration::from_millis(200), endless).await;
    assert!(left.is_err(), "the statement does not end");
    let next = async || sqlx::query("SELECT 1").execute(database.pool()).await.is_ok();
    eventually(SOON, "the only connection is free", next).await;
    let left = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND query = 'SELECT pg_sleep(3600)'";
    let ends = async || sqlx::query(left).fetch_optional(database.pool()).await.is_ok_and(|left| left.is_none());
    eventually(SOON, "the server has detected the lost client", ends).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn read_only_connections_are_not_reused() {
    let Some(url) = fresh_postgres_database().await else { return };
    let before = Postgres::connect(&url, Options::default()).await.unwrap();
    before.migrate().await.unwrap();
    let set = async |what: &str| {
        let name = url.rsplit('/').next().unwrap().split('?').next().unwrap();
        let statement = format!("ALTER DATABASE \"{name}\" {what}");
        sqlx::query(sqlx::AssertSqlSafe(statement)).execute(before.pool()).await.unwrap();
    };
    // As if the connections had been opened to a standby, before the server's name pointed to the new primary.
    set("SET default_transaction_read_only = on").await;
    let database = Postgres::connect(&url, Options::default()).await.unwrap();
    let error = database.append(&[message("a", 1)]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    set("RESET default_transaction_read_only").await;
    eventually(SOON, "it writes", async || database.append(&[message("a", 1)]).await.is_ok()).await;
    for sequence in 2..20 {
        database.append(&[message("a", sequence)]).await.unwrap();
    }
}
