//! The leases of relays that do not see each other's shards, for the bug that they share one epoch.

use std::time::Duration;

use async_trait::async_trait;
use landfall::adapter::{Lease, LeaseName, Shard};
use landfall::{Holder, Leases, Result};

/// Tells of no shard that it is taken: whoever asks goes on to acquire it, and gets it if it does not tell itself apart
/// from whoever holds it.
#[derive(Debug)]
pub struct Unseeing<D>(pub D);

#[async_trait]
impl<D: Leases> Leases for Unseeing<D> {
    async fn acquire(&self, name: &LeaseName, holder: &Holder, ttl: Duration) -> Result<Option<Lease>> {
        self.0.acquire(name, holder, ttl).await
    }

    async fn renew(&self, leases: &[Lease], ttl: Duration) -> Result<Vec<Lease>> {
        self.0.renew(leases, ttl).await
    }

    async fn release(&self, leases: &[Lease]) -> Result<()> {
        self.0.release(leases).await
    }

    async fn held(&self, prefix: &str) -> Result<Vec<LeaseName>> {
        if prefix == Shard::LEASES { Ok(Vec::new()) } else { self.0.held(prefix).await }
    }

    async fn lapsed(&self, prefix: &str) -> Result<Vec<Holder>> {
        self.0.lapsed(prefix).await
    }
}
