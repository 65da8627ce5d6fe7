//! Retries of transactions that the server has rolled back.

use std::time::Duration;

use landfall_core::{Error, Result};

use super::error::is_deadlock;

/// After a deadlock, one of the two transactions was rolled back, and the other one ends in a moment.
const ATTEMPTS: u32 = 5;

/// Runs `transaction` again while it fails with a deadlock: the server has rolled it back, so none of it happened. Does
/// not retry a commit whose outcome is unknown, nor a lock timeout (50 seconds by default), after which the caller has
/// waited long enough.
pub(crate) async fn retry_deadlocks<T, F: Future<Output = Result<T>>>(mut transaction: impl FnMut() -> F) -> Result<T> {
    let mut attempts = 0;
    loop {
        match transaction().await {
            Err(error) => back_off(error, &mut attempts).await?,
            outcome => return outcome,
        }
    }
}

/// Waits a moment before the next attempt. Returns the error if it is not a deadlock or was the last attempt's.
pub(crate) async fn back_off(error: Error, attempts: &mut u32) -> Result<()> {
    *attempts += 1;
    if *attempts >= ATTEMPTS || !is_rolled_back(&error) {
        return Err(error);
    }
    tracing::debug!(%error, attempts, "transaction rolled back by the server, retrying");
    tokio::time::sleep(Duration::from_millis(u64::from(rand::random_range(1..=5 * *attempts)))).await;
    Ok(())
}

pub(crate) fn is_rolled_back(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<sqlx::Error>());
    source.is_some_and(is_deadlock)
}
