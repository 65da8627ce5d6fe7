//! Databases for tests: on the server that all tests of a process share, or on one that somebody else runs.

use landfall_core::{Result, Timestamp};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection};
use tokio::sync::OnceCell;

use super::{MariaDbOptions, MariaDbServer};
use crate::not_run::{current_test, not_run};
use crate::servers::daemon::unavailable;
use crate::servers::names::{self, is_left_behind, with_database};

/// Names a server to use in place of a private one: MySQL 8 or MariaDB, by a user who may create databases.
pub(super) const URL_VARIABLE: &str = "LANDFALL_TEST_MYSQL_URL";

/// The server that all tests of this process share, started by the first who asks; `None`, with one line saying why,
/// if there can be none. Tests that break their server take a [`private_mariadb`].
pub async fn mariadb() -> Option<&'static MariaDbServer> {
    static SHARED: OnceCell<std::result::Result<MariaDbServer, String>> = OnceCell::const_new();
    match SHARED.get_or_init(async || MariaDbServer::start().await.map_err(|error| error.to_string())).await {
        Ok(server) => Some(server),
        Err(why) => {
            not_run(&current_test(), why);
            None
        }
    }
}

/// A server of the test's own, to be killed, paused and restarted; `None`, with one line saying why, if there can be
/// none. A server that somebody else runs cannot take its place.
pub async fn private_mariadb() -> Option<MariaDbServer> {
    private_mariadb_with(MariaDbOptions::default()).await
}

/// The same, set up in another way.
pub async fn private_mariadb_with(options: MariaDbOptions) -> Option<MariaDbServer> {
    MariaDbServer::start_with(options).await.map_err(|error| not_run(&current_test(), &error.to_string())).ok()
}

/// The URL of a new, empty database: on the server named by `LANDFALL_TEST_MYSQL_URL`, else on the shared private one.
/// `None`, with one line saying why, if there is no server: the test returns early and counts as not run.
pub async fn fresh_mysql_database() -> Option<String> {
    let created = match std::env::var(URL_VARIABLE) {
        Ok(url) => create_on_borrowed(&url).await,
        Err(_) => mariadb().await?.fresh_database().await,
    };
    created.map_err(|error| not_run(&current_test(), &error.to_string())).ok()
}

/// Creates a database beside the one that `base` names, and answers with its URL.
pub(super) async fn create(base: &str) -> Result<String> {
    let name = names::fresh();
    let failed = |error| unavailable("cannot create a database on the MySQL test server", error);
    let mut connection = MySqlConnection::connect(base).await.map_err(failed)?;
    // In a character set that is not Landfall's, as an old application's database would be.
    let statement = format!("CREATE DATABASE {name} CHARACTER SET latin1");
    sqlx::query(AssertSqlSafe(statement)).execute(&mut connection).await.map_err(failed)?;
    connection.close().await.map_err(failed)?;
    Ok(with_database(base, &name))
}

/// On a server that outlives the tests, what earlier runs left behind is removed first.
async fn create_on_borrowed(base: &str) -> Result<String> {
    static TIDIED: OnceCell<()> = OnceCell::const_new();
    TIDIED
        .get_or_init(async || {
            if let Err(error) = remove_left_behind(base).await {
                tracing::warn!(error = %error, "databases of earlier test runs were not removed");
            }
        })
        .await;
    create(base).await
}

async fn remove_left_behind(base: &str) -> sqlx::Result<()> {
    let mut connection = MySqlConnection::connect(base).await?;
    let statement = "SELECT schema_name FROM information_schema.schemata WHERE LEFT(schema_name, CHAR_LENGTH(?)) = ?";
    let names: Vec<String> =
        sqlx::query_scalar(statement).bind(names::PREFIX).bind(names::PREFIX).fetch_all(&mut connection).await?;
    for name in names.iter().filter(|name| is_left_behind(name, Timestamp::now())) {
        sqlx::query(AssertSqlSafe(format!("DROP DATABASE {name}"))).execute(&mut connection).await?;
    }
    connection.close().await
}
