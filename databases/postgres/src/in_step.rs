//! A connection that comes back to the pool is one that answers.
//!
//! The driver asks it, too, and waits for as long as that takes: for ever, where a server is gone that nobody heard hang up,
//! and over TLS also where a statement failed whose caller had left. The pool would have a place less, for good.

use std::time::Duration;

use sqlx::{Connection, Executor, PgConnection};

/// For the rest of what was asked before as well, such as a statement that still waits for a lock.
const WITHIN: Duration = Duration::from_secs(2);

/// Whether a connection can be used again after somebody gave it back; if not, the pool closes it. What [`Postgres::connect`](crate::Postgres::connect) gives to its pool, for a pool of your own:
///
/// ```
/// # fn options() -> sqlx::postgres::PgPoolOptions {
/// sqlx::postgres::PgPoolOptions::new().after_release(|connection, _| Box::pin(landfall_postgres::in_step(connection)))
/// # }
/// ```
pub async fn in_step(connection: &mut PgConnection) -> sqlx::Result<bool> {
    match tokio::time::timeout(WITHIN, connection.ping()).await {
        Ok(Ok(())) => Ok(true),
        Ok(Err(error @ sqlx::Error::Io(_))) => Err(error),
        _ => {
            tracing::debug!("a statement was cut off on a connection, which is closed");
            // Not an error: the pool would then close it without a word to the server, and over TLS the driver waits for one
            // from there before it closes anything.
            Ok(false)
        }
    }
}

/// Has the server look now and then whether we are still there while it works for us. A statement that waits for a lock would
/// otherwise go on waiting after its connection was closed here, one of a server's hundred places each.
pub(crate) async fn look_for_its_client(connection: &mut PgConnection, is_behind_pooler: bool) -> sqlx::Result<()> {
    if is_behind_pooler {
        return Ok(());
    }
    match connection.execute("SET client_connection_check_interval = '10s'").await {
        // Before PostgreSQL 14 it does not, nor where the system cannot tell.
        Ok(_) | Err(sqlx::Error::Database(_)) => Ok(()),
        Err(error) => Err(error),
    }
}
