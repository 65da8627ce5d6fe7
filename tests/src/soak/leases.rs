//! Leases that hide the shards of other relays, for the planted bug in which all relays share one epoch.

use std::time::Duration;

use async_trait::async_trait;
use landfall::{Holder, Lease, LeaseName, Leases, Result, Shard};

/// Reports no shard as held. So a relay tries to acquire all of them, and succeeds if it has the same name as the
/// holder.
#[derive(Debug)]
pub struct BlindLeases<D>(pub D);

#[async_trait]
impl<D: Leases> Leases for BlindLeases<D> {
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
