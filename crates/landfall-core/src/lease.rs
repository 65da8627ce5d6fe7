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

/// What is leased, such as `outbox/3` (shard 3 of the outbox) or `relay/0` (a relay that is alive).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct LeaseName(pub String);

/// Grows by one each time a lease changes hands: the fencing token. Whatever compares it rejects the one before.
pub type Epoch = i64;

/// A lease as its holder knows it.
#[derive(Debug, Clone)]
pub struct Lease {
    pub name: LeaseName,
    pub holder: Holder,
    pub epoch: Epoch,
    /// On this process's own clock, counted from before the request was sent: never later than what the database
    /// believes. Past it the holder must not start anything under this lease.
    pub until: Instant,
}

impl Lease {
    pub fn is_live(&self) -> bool {
        Instant::now() < self.until
    }
}

/// Exclusive, expiring ownership, on the database's clock.
#[async_trait]
pub trait Leases: Send + Sync {
    /// Takes `name` for `holder` if it is free, expired or already this holder's; `None` if somebody else holds it.
    ///
    /// Taking what was free or expired gives a new, higher epoch; taking what is already held keeps the epoch and
    /// extends the time. The answer is durable before it is given.
    async fn acquire(&self, name: &LeaseName, holder: &Holder, ttl: Duration) -> Result<Option<Lease>>;

    /// Extends those of `leases` that are still held under the same epoch, and answers with them, in order. One that
    /// expired but was taken by nobody is extended too: its epoch proves that nothing happened in between.
    async fn renew(&self, leases: &[Lease], ttl: Duration) -> Result<Vec<Lease>>;

    /// Gives back those that are still held under the same epoch; the others are left alone. Idempotent.
    async fn release(&self, leases: &[Lease]) -> Result<()>;

    /// The names that begin with `prefix` and are held by somebody right now, in order of name.
    async fn held(&self, prefix: &str) -> Result<Vec<LeaseName>>;

    /// Those who let a lease whose name begins with `prefix` expire, which nobody has taken since: each once, in order.
    /// They are dead or slow, and may not know it yet.
    async fn lapsed(&self, prefix: &str) -> Result<Vec<Holder>>;
}
