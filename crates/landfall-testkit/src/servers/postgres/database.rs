//! Databases for tests, on the shared private server or on an external one.

use landfall_core::{Result, Timestamp};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::sync::OnceCell;

use super::PostgresServer;
use crate::not_run::{current_test, not_run};
use crate::servers::daemon::unavailable;
use crate::servers::names::{self, is_leftover, with_database};

/// The environment variable with the URL of an external server.
pub(super) const URL_VARIABLE: &str = "LANDFALL_TEST_POSTGRES_URL";

/// Returns the server shared by all tests of this process, started on first use.
///
/// Returns `None` if it cannot start, after calling [`not_run()`]. Tests that disturb their server use
/// [`private_postgres`].
pub async fn postgres() -> Option<&'static PostgresServer> {
    static SHARED: OnceCell<std::result::Result<PostgresServer, String>> = OnceCell::const_new();
    match SHARED.get_or_init(async || PostgresServer::start().await.map_err(|error| error.to_string())).await {
        Ok(server) => Some(server),
        Err(reason) => {
            not_run(&current_test(), reason);
            None
        }
    }
}

/// Starts a server for one test, to be killed, paused and restarted. An external server cannot replace it.
///
/// Returns `None` if it cannot start, after calling [`not_run()`].
pub async fn private_postgres() -> Option<PostgresServer> {
    PostgresServer::start().await.map_err(|error| not_run(&current_test(), &error.to_string())).ok()
}

/// Creates an empty database on the server named by `LANDFALL_TEST_POSTGRES_URL`, else on the shared private one.
///
/// Returns its URL, or `None` without a server, after calling [`not_run()`]: the test then returns early.
pub async fn fresh_postgres_database() -> Option<String> {
    let created = match std::env::var(URL_VARIABLE) {
        Ok(url) => create_on_external(&url).await,
        Err(_) => postgres().await?.fresh_database().await,
    };
    created.map_err(|error| not_run(&current_test(), &error.to_string())).ok()
}

/// Creates a database on the server of `base` and returns its URL.
pub(super) async fn create(base: &str) -> Result<String> {
    let name = names::fresh();
    let failed = |error| unavailable("cannot create a database on the PostgreSQL test server", error);
    let mut connection = PgConnection::connect(base).await.map_err(failed)?;
    // Not from template1, which may contain objects on an external server.
    let statement = format!("CREATE DATABASE {name} TEMPLATE template0");
    sqlx::query(AssertSqlSafe(statement)).execute(&mut connection).await.map_err(failed)?;
    connection.close().await.map_err(failed)?;
    Ok(with_database(base, &name))
}

/// Creates a database on an external server, after removing the leftovers of earlier runs.
async fn create_on_external(base: &str) -> Result<String> {
    static CLEANED: OnceCell<()> = OnceCell::const_new();
    CLEANED
        .get_or_init(async || {
            if let Err(error) = remove_leftovers(base).await {
                tracing::warn!(%error, "failed to remove databases of earlier test runs");
            }
        })
        .await;
    create(base).await
}

async fn remove_leftovers(base: &str) -> sqlx::Result<()> {
    let mut connection = PgConnection::connect(base).await?;
    let names: Vec<String> = sqlx::query_scalar("SELECT datname FROM pg_database WHERE starts_with(datname, $1)")
        .bind(names::PREFIX)
        .fetch_all(&mut connection)
        .await?;
    for name in names.iter().filter(|name| is_leftover(name, Timestamp::now())) {
        // The server refuses to drop a database in use; a concurrent test run may own it.
        if let Err(error) = sqlx::query(AssertSqlSafe(format!("DROP DATABASE {name}"))).execute(&mut connection).await {
            tracing::debug!(database = %name, %error, "failed to drop a database of an earlier test run");
        }
    }
    connection.close().await
}
