//! Checks connections before the pool hands them out again.
//!
//! The driver pings a returned connection as well, but without a time limit. It waits for ever if the server vanished
//! without closing the socket, and over TLS also after a failed statement whose caller was cancelled. Each of those
//! would cost the pool a connection permanently.

use std::time::Duration;

use sqlx::{Connection, Executor, PgConnection};

/// Includes the rest of an abandoned statement, such as one that still waits for a lock.
const WITHIN: Duration = Duration::from_secs(2);

/// Returns whether a connection that comes back to the pool can be used again; if not, the pool closes it.
///
/// The pool of [`Postgres::connect`](crate::Postgres::connect) uses it. For a pool of your own:
///
/// ```
/// # fn options() -> sqlx::postgres::PgPoolOptions {
/// sqlx::postgres::PgPoolOptions::new()
///     .after_release(|connection, _| Box::pin(landfall_postgres::reset_if_desynced(connection)))
/// # }
/// ```
pub async fn reset_if_desynced(connection: &mut PgConnection) -> sqlx::Result<bool> {
    match tokio::time::timeout(WITHIN, connection.ping()).await {
        Ok(Ok(())) => Ok(true),
        Ok(Err(error @ sqlx::Error::Io(_))) => Err(error),
        _ => {
            tracing::debug!("closing a connection whose last statement was cancelled");
            // Not an error: the pool would then close the socket without telling the server, and over TLS the driver
            // first waits for the server's answer.
            Ok(false)
        }
    }
}

/// Makes the server check every ten seconds during a statement that its client is still connected. Otherwise a
/// statement that waits for a lock keeps its server process, one of about a hundred, after its client is gone.
pub(crate) async fn detect_lost_client(connection: &mut PgConnection, is_behind_pooler: bool) -> sqlx::Result<()> {
    if is_behind_pooler {
        return Ok(());
    }
    match connection.execute("SET client_connection_check_interval = '10s'").await {
        // Not supported before PostgreSQL 14, nor on every operating system.
        Ok(_) | Err(sqlx::Error::Database(_)) => Ok(()),
        Err(error) => Err(error),
    }
}
