//! A connection that comes back to the pool is one on which nobody has left anything unread.
//!
//! The driver does not notice everything that a caller leaves behind who is gone in the middle of a statement: the answer
//! to a `PREPARE` is taken for that of a statement, and a packet whose first bytes were read is gone on with as if it
//! began there. What comes next then waits for ever, or gets what was meant for somebody else. So a connection has to
//! repeat a number that nobody can guess before it is used again, and is closed if it does not, or not in time.
//!
//! The driver may also panic over an answer that it reads from its middle, as it was seen to with MySQL 9.7. The pool would
//! then have a place less, for good.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use sqlx::MySqlConnection;

/// For the rest of what was asked before as well, such as a statement that still waits for a lock.
const WITHIN: Duration = Duration::from_secs(2);

/// Whether a connection can be used again after somebody gave it back; if not, the pool closes it. What [`MySql::connect`](crate::MySql::connect) gives to its pool, for a pool of your own:
///
/// ```
/// # fn options() -> sqlx::mysql::MySqlPoolOptions {
/// sqlx::mysql::MySqlPoolOptions::new().after_release(|connection, _| Box::pin(landfall_mysql::in_step(connection)))
/// # }
/// ```
pub async fn in_step(connection: &mut MySqlConnection) -> sqlx::Result<bool> {
    let number = rand::random();
    // Nobody uses the connection after a panic: it is closed.
    let repeating = AssertUnwindSafe(repeat(connection, number)).catch_unwind();
    match tokio::time::timeout(WITHIN, repeating).await {
        Ok(Ok(Ok(answer))) if answer == number => Ok(true),
        Ok(Ok(Err(error @ sqlx::Error::Io(_)))) => Err(error),
        _ => {
            tracing::debug!("a statement was cut off on a connection, which is closed");
            // Not an error: the pool would then close it without a word to the server, and over TLS the driver waits for one
            // from there before it closes anything. The connection would never end, nor the pool have its place back.
            Ok(false)
        }
    }
}

async fn repeat(connection: &mut MySqlConnection, number: i64) -> sqlx::Result<i64> {
    sqlx::query_scalar("SELECT CAST(? AS SIGNED)").bind(number).fetch_one(connection).await
}
