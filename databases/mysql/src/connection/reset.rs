//! Checks that a connection's protocol is in sync before the pool hands it out again.
//!
//! The driver does not notice everything that a caller leaves behind when it is cancelled during a statement. It takes
//! the answer to a `PREPARE` for that of a statement, and continues in the middle of a packet whose first bytes were
//! read. The next statement then waits for ever, or gets an answer meant for another one. So a connection has to echo a
//! random number before it is used again. It is closed if the answer is wrong or late.
//!
//! The driver can also panic over an answer that it reads from its middle, as seen with MySQL 9.7. The pool would then
//! lose a connection permanently.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use sqlx::MySqlConnection;

/// Includes the rest of an abandoned statement, such as one that still waits for a lock.
const WITHIN: Duration = Duration::from_secs(2);

/// Returns whether a connection that comes back to the pool can be used again; if not, the pool closes it.
///
/// The pool of [`MySql::connect`](crate::MySql::connect) uses it. For a pool of your own:
///
/// ```
/// # fn options() -> sqlx::mysql::MySqlPoolOptions {
/// sqlx::mysql::MySqlPoolOptions::new()
///     .after_release(|connection, _| Box::pin(landfall_mysql::reset_if_desynced(connection)))
/// # }
/// ```
pub async fn reset_if_desynced(connection: &mut MySqlConnection) -> sqlx::Result<bool> {
    let number = rand::random();
    // After a panic the connection is closed, so its state does not matter.
    let echoed = AssertUnwindSafe(echo(connection, number)).catch_unwind();
    match tokio::time::timeout(WITHIN, echoed).await {
        Ok(Ok(Ok(answer))) if answer == number => Ok(true),
        Ok(Ok(Err(error @ sqlx::Error::Io(_)))) => Err(error),
        _ => {
            tracing::debug!("closing a connection whose last statement was cancelled");
            // Not an error: the pool would then close the socket without telling the server, and over TLS the driver
            // first waits for the server's answer. The connection would never be closed, nor its place become free.
            Ok(false)
        }
    }
}

async fn echo(connection: &mut MySqlConnection, number: i64) -> sqlx::Result<i64> {
    sqlx::query_scalar("SELECT CAST(? AS SIGNED)").bind(number).fetch_one(connection).await
}
