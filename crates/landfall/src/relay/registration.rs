//! A relay's registration: a lease of its own, the first free of `relay/0`, `relay/1`…. So the table never has more of
//! these than relays ran at the same time.
//!
//! Ordered and unordered relays register under different prefixes. Each registers before it counts the other kind, so
//! of two that start at the same moment at least one sees the other.

use std::sync::Arc;
use std::time::Duration;

use landfall_core::adapter::{Lease, LeaseName};
use landfall_core::{Holder, Leases, Result};

use crate::call_deadline::CallDeadline;

/// Whether a relay keeps the order of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RelayKind {
    Ordered,
    Unordered,
}

impl RelayKind {
    /// The prefix of the names of its leases.
    fn prefix(self) -> &'static str {
        match self {
            Self::Ordered => "relay/",
            Self::Unordered => "unordered/",
        }
    }
}

/// The lease by which other relays see that this one is alive.
pub(super) struct Registration {
    pub(super) leases: Arc<dyn Leases>,
    pub(super) holder: Holder,
    pub(super) ttl: Duration,
    kind: RelayKind,
    number: u32,
}

impl Registration {
    pub(super) fn new(leases: Arc<dyn Leases>, holder: Holder, ttl: Duration, kind: RelayKind) -> Self {
        Self { leases, holder, ttl, kind, number: 0 }
    }

    /// Often enough to renew twice before a lease expires, and to take over a dead relay's shards within a second.
    pub(super) fn interval(&self) -> Duration {
        (self.ttl / 3).min(Duration::from_secs(1))
    }

    pub(super) fn deadline(&self) -> CallDeadline {
        CallDeadline::for_lease(self.ttl)
    }

    /// Registers, or renews the registration.
    pub(super) async fn renew(&mut self) -> Result<Lease> {
        loop {
            let name = LeaseName(format!("{}{}", self.kind.prefix(), self.number));
            if let Some(lease) = self.leases.acquire(&name, &self.holder, self.ttl).await? {
                return Ok(lease);
            }
            self.number += 1;
        }
    }

    /// The number of registered relays of `kind`.
    pub(super) async fn count(&self, kind: RelayKind) -> Result<usize> {
        Ok(self.leases.held(kind.prefix()).await?.len())
    }

    /// Releases the registration together with `others`.
    pub(super) async fn release(&mut self, mut others: Vec<Lease>) -> Result<()> {
        // Acquiring a lease that is already held returns its epoch.
        others.push(self.renew().await?);
        self.leases.release(&others).await
    }
}
