//! A connection that comes back to the pool is one on which nobody has left anything unread.
//!
//! The driver does not notice everything that a caller leaves behind who is gone in the middle of a statement: the answer
//! to a `PREPARE` is taken for that of a statement, and a packet whose first bytes were read is gone on with as if it
//! began there. What comes next then waits for ever, or gets what was meant for somebody else. So a connection has to
//! repeat a number that nobody can guess before it is used again, and is closed if it does not, or not in time.

use std::time::Duration;

use sqlx::MySqlConnection;

/// For the rest of what was asked before as well, such as a statement that still waits for a lock.
const WITHIN: Duration = Duration::from_secs(2);

/// Whether a connection can be used again after somebody gave it back; an error closes it at once, without a word to the
/// server. What [`MySql::connect`](crate::MySql::connect) gives to its pool, for a pool of your own:
///
/// ```
/// # fn options() -> sqlx::mysql::MySqlPoolOptions {
/// sqlx::mysql::MySqlPoolOptions::new().after_release(|connection, _| Box::pin(landfall_mysql::in_step(connection)))
/// # }
/// ```
pub async fn in_step(connection: &mut MySqlConnection) -> sqlx::Result<bool> {
    let number = rand::random();
    let repeated = tokio::time::timeout(WITHIN, repeat(connection, number)).await;
    match repeated {
        Ok(Ok(answer)) if answer == number => Ok(true),
        Ok(Err(error)) if !matches!(error, sqlx::Error::Protocol(_)) => Err(error),
        _ => Err(sqlx::Error::Protocol("a statement was cut off on this connection; it is closed".into())),
    }
}

async fn repeat(connection: &mut MySqlConnection, number: i64) -> sqlx::Result<i64> {
    sqlx::query_scalar("SELECT CAST(? AS SIGNED)").bind(number).fetch_one(connection).await
}
