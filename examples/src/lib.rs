//! What the examples share: an error that is only told, and a wait that ends.

use std::time::{Duration, Instant};

/// The examples tell their errors to a person and end; nobody decides by their kind.
pub type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// Asks `is_so` until it answers yes, for at most 20 seconds.
///
/// A real service waits for nothing: its relay and its consumer run for as long as it does. The examples want to show
/// what happened, and so have to know when it has.
pub async fn until(what: &str, mut is_so: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let started = Instant::now();
    while !is_so().await? {
        if started.elapsed() > Duration::from_secs(20) {
            return Err(format!("waited in vain until {what}").into());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}
