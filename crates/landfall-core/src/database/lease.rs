use std::fmt;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use serde::Serialize;

use crate::Result;

/// Who holds a lease: one per process, never reused.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Holder(pub String);

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a lease, such as `outbox/3` (shard 3 of the outbox) or `relay/0` (a live relay).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct LeaseName(pub String);

/// The fencing token: grows by one each time a lease changes hands.
pub type Epoch = i64;

/// A lease, as its holder sees it.
#[derive(Debug, Clone)]
pub struct Lease {
    pub name: LeaseName,
    pub holder: Holder,
    pub epoch: Epoch,
    /// The expiry on the local clock, counted from before the request was sent, so never later than the database's.
    /// After it the holder must not start anything under this lease.
    pub until: Instant,
}

impl Lease {
    pub fn is_live(&self) -> bool {
        Instant::now() < self.until
    }
}

/// Exclusive, expiring ownership by the database's clock.
#[async_trait]
pub trait Leases: Send + Sync {
    /// Acquires `name` for `holder` if it is free, expired or already this holder's; `None` if another holder has it.
    ///
    /// A free or expired lease gets a new, higher epoch. A lease that this holder has keeps its epoch and is extended.
    /// The result is durable before this returns.
    async fn acquire(&self, name: &LeaseName, holder: &Holder, ttl: Duration) -> Result<Option<Lease>>;

    /// Extends and returns, in order, the `leases` still held under the same epoch. An expired, unclaimed lease is
    /// extended too: its epoch proves that it was not held in between.
    async fn renew(&self, leases: &[Lease], ttl: Duration) -> Result<Vec<Lease>>;

    /// Releases the leases still held under the same epoch and ignores the others. Idempotent.
    async fn release(&self, leases: &[Lease]) -> Result<()>;

    /// Returns the names of live leases under `prefix`, sorted.
    async fn held(&self, prefix: &str) -> Result<Vec<LeaseName>>;

    /// Returns the holders of expired, unclaimed leases under `prefix`: each once, sorted. They are dead or slow, and
    /// may not know that they lost the lease.
    async fn lapsed(&self, prefix: &str) -> Result<Vec<Holder>>;
}
