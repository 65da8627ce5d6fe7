use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use landfall_core::adapter::ConnectionEpoch;
use landfall_core::{Error, ErrorKind, Result};
use sqlx::pool::PoolOptions;
use sqlx::{Connection, Database};

use crate::server::{ErrorCodes, Server};

/// How long [`probe`] tries before it reports the server as unreachable.
const CONNECT_WITHIN: Duration = Duration::from_secs(4);
/// How long a call waits for a connection from the pool.
const ACQUIRE_WITHIN: Duration = Duration::from_secs(10);
/// A connection idle for longer is checked before it is used. Checking each time would cost a round trip.
const CHECK_AFTER_IDLE: Duration = Duration::from_secs(1);

/// A check that returns whether a connection may be used again.
type Check<C> = for<'c> fn(&'c mut C) -> Pin<Box<dyn Future<Output = sqlx::Result<bool>> + Send + 'c>>;

/// Options of a pool that checks a connection when it comes back and after it was idle, and drops those that `epoch`
/// has retired.
pub fn pool_options<DB: Database>(
    max_connections: u32,
    epoch: Arc<ConnectionEpoch>,
    check: Check<DB::Connection>,
) -> PoolOptions<DB> {
    PoolOptions::new()
        .max_connections(max_connections)
        .acquire_timeout(ACQUIRE_WITHIN)
        .test_before_acquire(false)
        .before_acquire(move |connection, meta| {
            let is_current = epoch.is_current(meta.age);
            Box::pin(async move {
                if is_current && meta.idle_for > CHECK_AFTER_IDLE {
                    return check(connection).await;
                }
                Ok(is_current)
            })
        })
        .after_release(move |connection, _| check(connection))
}

/// Opens one connection and closes it. A pool retries until its timeout and then reports only the timeout; this
/// reports why the server cannot be reached, in less than five seconds.
pub async fn probe<E: ErrorCodes, C: Connection>(server: &Server<E>, target: &C::Options) -> Result<()> {
    match tokio::time::timeout(CONNECT_WITHIN, C::connect_with(target)).await {
        Ok(Ok(connection)) => drop(connection.close().await),
        Ok(Err(error)) => return Err(server.could_not("open a connection")(error)),
        Err(_) => {
            let (product, address, seconds) = (E::PRODUCT, server.address(), CONNECT_WITHIN.as_secs());
            let sentence = format!("{product} at {address} did not answer within {seconds} seconds");
            return Err(Error::new(ErrorKind::Unavailable, sentence));
        }
    }
    Ok(())
}
