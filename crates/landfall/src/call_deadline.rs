//! A time limit on database calls.
//!
//! A host that loses power, or a firewall that drops a connection's state, never closes the connection: a client that
//! waits for the reply waits forever. When the limit expires the call is abandoned as if the connection had been lost,
//! and is repeated on another one.

use std::time::Duration;

use landfall_core::{Error, ErrorKind, Result};

/// The shortest limit: a database under load may take this long.
const MINIMUM: Duration = Duration::from_secs(20);

/// How long one call to the database may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallDeadline(Duration);

impl CallDeadline {
    /// For a single statement.
    pub(crate) const STATEMENT: Self = Self(Duration::from_secs(60));

    /// For work under a lease: by then the lease has long expired, and another relay, if one runs, has taken over.
    pub(crate) fn for_lease(lease_ttl: Duration) -> Self {
        Self((6 * lease_ttl).max(MINIMUM))
    }

    /// Awaits `call`; fails with kind `Unavailable` when the limit expires first.
    pub(crate) async fn run<T>(self, call: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::time::timeout(self.0, call).await.unwrap_or_else(|elapsed| {
            let text = format!("the database did not answer within {} seconds", self.0.as_secs());
            Err(Error::new(ErrorKind::Unavailable, text).with_source(elapsed))
        })
    }
}
