//! Once more, where the server said that it rolled back.

use std::time::Duration;

use landfall_core::{Error, Result};

use crate::error;

/// Two transactions that deadlock go on after one of them was rolled back: the other one is out of the way in a moment.
const TRIES: u32 = 5;

/// Runs `transaction` again while it fails because of a deadlock: the server has rolled it back, so nothing of it
/// happened. A commit whose outcome is unknown is no such failure. A lock that was not given in time (50 seconds by
/// default) is left to the caller, who has waited long enough.
pub(crate) async fn retried<T, F: Future<Output = Result<T>>>(mut transaction: impl FnMut() -> F) -> Result<T> {
    let mut tries = 0;
    loop {
        match transaction().await {
            Err(error) => once_more(error, &mut tries).await?,
            outcome => return outcome,
        }
    }
}

/// Waits a moment before the next try; answers with the error if there is none.
pub(crate) async fn once_more(error: Error, tries: &mut u32) -> Result<()> {
    *tries += 1;
    if *tries >= TRIES || !is_rolled_back(&error) {
        return Err(error);
    }
    tracing::debug!(%error, tries, "rolled back by the server; trying again");
    tokio::time::sleep(Duration::from_millis(u64::from(rand::random_range(1..=5 * *tries)))).await;
    Ok(())
}

fn is_rolled_back(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<sqlx::Error>());
    source.is_some_and(error::is_deadlock)
}
