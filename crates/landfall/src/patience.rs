//! How long a database is waited for.
//!
//! A host that loses its power, or a firewall that forgets a connection, hangs up on nobody: whoever waits for an answer waits
//! for ever. What was asked for is given up then, as if the connection had been lost, and asked for on another one.

use std::time::Duration;

use landfall_core::{Error, ErrorKind, Result};

/// No database is called slow before this.
const AT_LEAST: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience(Duration);

impl Patience {
    /// With one statement.
    pub(crate) const USUAL: Self = Self(Duration::from_secs(60));

    /// With a step under leases: they have long ended by then, and somebody else has taken over if there is anybody.
    pub(crate) fn of(lease_ttl: Duration) -> Self {
        Self((6 * lease_ttl).max(AT_LEAST))
    }

    pub(crate) async fn with<T>(self, step: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::time::timeout(self.0, step).await.unwrap_or_else(|late| {
            let sentence = format!("the database did not answer within {} seconds", self.0.as_secs());
            Err(Error::new(ErrorKind::Unavailable, sentence).with_source(late))
        })
    }
}
