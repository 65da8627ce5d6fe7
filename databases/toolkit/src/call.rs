use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use landfall_core::adapter::{ConnectionEpoch, DetachOnDrop};
use sqlx::{Database, Pool, SqlStr, Transaction};
use tokio::time::timeout;

/// How long a server may take to begin or to end a transaction. A connection that is silent for longer is treated as
/// lost: the server may be gone without the socket having reported it.
pub const CALL_DEADLINE: Duration = Duration::from_secs(60);

/// Runs a statement, and fails with a timeout of kind `Io` after [`CALL_DEADLINE`].
pub async fn within_deadline<T>(statement: impl Future<Output = sqlx::Result<T>>) -> sqlx::Result<T> {
    let late = || std::io::Error::new(std::io::ErrorKind::TimedOut, "no answer within a minute");
    timeout(CALL_DEADLINE, statement).await.unwrap_or_else(|_| Err(sqlx::Error::Io(late())))
}

/// Begins a transaction with the statement `begin`, within [`CALL_DEADLINE`]. Cancellation-safe: if dropped, the rest
/// runs in a spawned task, and the transaction is rolled back there.
///
/// The driver registers a transaction only after the server has answered. If the caller were dropped before that, as a
/// request whose client disconnects, the pool would get back a connection with an open transaction. The writes of its
/// next user would never be committed.
pub async fn begin_detached<DB: Database>(
    pool: &Pool<DB>,
    begin: &'static str,
    epoch: Option<&Arc<ConnectionEpoch>>,
) -> sqlx::Result<Transaction<'static, DB>>
where
    Transaction<'static, DB>: Send,
{
    let pool = pool.clone();
    let begun = DetachOnDrop::new(async move { pool.begin_with(SqlStr::from_static(begin)).await }, |rest| {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(finish(rest, epoch.cloned()));
        }
    });
    within_deadline(begun).await
}

/// Runs an abandoned call to its end. On a pool that checks connections, a call without an answer retires every open
/// connection: a transaction may still begin in one of them.
async fn finish(mut rest: Pin<Box<impl Future>>, epoch: Option<Arc<ConnectionEpoch>>) {
    match epoch {
        Some(epoch) if timeout(CALL_DEADLINE, rest.as_mut()).await.is_err() => epoch.retire_all(),
        Some(_) => {}
        None => drop(rest.await),
    }
}
