//! A migrated database for one test, and steps that the tests share.

use landfall_core::Schema;
use landfall_postgres::{Options, Postgres};
use landfall_testkit::eventually;
pub(crate) use landfall_testkit::relay_steps::{LONG, SOON, due, lease_all, message, publish_everything, settlement};
use landfall_testkit::servers::fresh_postgres_database;

/// Returns `None`, after reporting it, if there is no server.
pub(crate) async fn migrated() -> Option<Postgres> {
    let url = fresh_postgres_database().await?;
    let database = open(&url).await;
    database.migrate().await.unwrap();
    Some(database)
}

pub(crate) async fn open(url: &str) -> Postgres {
    Postgres::connect(url, Options { max_connections: 6, ..Options::default() }).await.unwrap()
}

/// Opens another instance on the same database, which stands for another process.
pub(crate) async fn another(database: &Postgres) -> Postgres {
    let pool = sqlx::postgres::PgPoolOptions::new()
        .max_connections(4)
        .connect_with((*database.pool().connect_options()).clone())
        .await
        .unwrap();
    Postgres::from_pool(pool, Options { prefix: database.prefix().clone(), ..Options::default() })
}

/// Waits until some statement on this database waits for a lock.
pub(crate) async fn until_blocked(database: &Postgres) {
    eventually(SOON, "a statement waits for a lock", async || {
        let blocked: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_activity
             WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0",
        )
        .fetch_one(database.pool())
        .await
        .unwrap();
        blocked > 0
    })
    .await;
}
