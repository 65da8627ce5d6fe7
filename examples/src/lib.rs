//! Helpers of the examples: an error type, a wait with a timeout, and a relay that stops when the outbox is empty.

mod delivery;

use std::time::{Duration, Instant};

pub use delivery::deliver;

/// Examples print their errors and exit; they never decide by the kind of an error.
pub type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// The database URL from the example's first argument.
pub fn database_url() -> Result<String> {
    std::env::args().nth(1).ok_or_else(|| "give the URL of an empty database as the argument".into())
}

/// Polls `condition` until it is true, for at most 20 seconds.
///
/// A real service does not wait: its relay and its consumer run as long as the service. The examples wait because they
/// print the result.
pub async fn until(what: &str, mut condition: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let started = Instant::now();
    while !condition().await? {
        if started.elapsed() > Duration::from_secs(20) {
            return Err(format!("timed out waiting until {what}").into());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}
