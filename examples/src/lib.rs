//! What the examples share: an error that is only told, a wait that ends, and a relay that is stopped when it is done.

mod delivery;

use std::time::{Duration, Instant};

pub use delivery::deliver;

/// The examples tell their errors to a person and end; nobody decides by their kind.
pub type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// The database that the example's first argument names.
pub fn database_url() -> Result<String> {
    std::env::args().nth(1).ok_or_else(|| "give the URL of an empty database as the argument".into())
}

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
