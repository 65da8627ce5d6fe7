//! A relay's sign of life: a lease of its own, the first free one of `relay/0`, `relay/1`…, so that the table never has
//! more of these than there were relays at the same time.
//!
//! Relays that keep order sit on one row of seats and unordered ones on another. Each takes its seat before it looks
//! whether the other row is empty, so of two that start at the same moment at least one sees the other.

use std::sync::Arc;
use std::time::Duration;

use landfall_core::{Holder, Lease, LeaseName, Leases, Result};

use crate::patience::Patience;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Row {
    Ordered,
    Unordered,
}

impl Row {
    pub(super) fn prefix(self) -> &'static str {
        match self {
            Self::Ordered => "relay/",
            Self::Unordered => "unordered/",
        }
    }
}

pub(super) struct Seat {
    pub(super) leases: Arc<dyn Leases>,
    pub(super) holder: Holder,
    pub(super) ttl: Duration,
    row: Row,
    number: u32,
}

impl Seat {
    pub(super) fn new(leases: Arc<dyn Leases>, holder: Holder, ttl: Duration, row: Row) -> Self {
        Self { leases, holder, ttl, row, number: 0 }
    }

    /// Often enough to renew twice before a lease ends, and to take over a dead relay's shards within a second.
    pub(super) fn interval(&self) -> Duration {
        (self.ttl / 3).min(Duration::from_secs(1))
    }

    /// With the database.
    pub(super) fn patience(&self) -> Patience {
        Patience::of(self.ttl)
    }

    /// Takes a seat, or stays on the one it has.
    pub(super) async fn take(&mut self) -> Result<Lease> {
        loop {
            let name = LeaseName(format!("{}{}", self.row.prefix(), self.number));
            if let Some(lease) = self.leases.acquire(&name, &self.holder, self.ttl).await? {
                return Ok(lease);
            }
            self.number += 1;
        }
    }

    /// How many sit on `row`.
    pub(super) async fn count(&self, row: Row) -> Result<usize> {
        Ok(self.leases.held(row.prefix()).await?.len())
    }

    /// Gets up, and gives `others` back as well.
    pub(super) async fn leave(&mut self, mut others: Vec<Lease>) -> Result<()> {
        // Taking what one holds is how one learns its epoch.
        others.push(self.take().await?);
        self.leases.release(&others).await
    }
}
