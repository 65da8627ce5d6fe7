//! Leases: one row each, compared and changed on the server's clock.
//!
//! A released lease keeps its row and its epoch, so that no epoch is used twice.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use landfall_core::adapter::{Epoch, Lease, LeaseName};
use landfall_core::{Holder, Leases, Result};

use crate::Postgres;

#[async_trait]
impl Leases for Postgres {
    async fn acquire(&self, name: &LeaseName, holder: &Holder, ttl: Duration) -> Result<Option<Lease>> {
        // Measured before the request: on the server the lease can only expire later.
        let until = Instant::now() + ttl;
        let doing = "acquire a lease";
        let mut session = self.session().await?;
        let acquired: Option<(Epoch, Option<String>)> = self
            .query_as(&self.statements().lease_acquire)
            .bind(&name.0)
            .bind(&holder.0)
            .bind(ttl.as_secs_f64())
            .fetch_optional(session.connection())
            .await
            .map_err(self.could_not(doing))?;
        session.finish().await.map_err(self.could_not(doing))?;
        if let Some((epoch, Some(previous))) = &acquired {
            tracing::warn!(lease = %name.0, %previous, epoch, "took over a lease written under a wrong clock");
        }
        Ok(acquired.map(|(epoch, _)| Lease { name: name.clone(), holder: holder.clone(), epoch, until }))
    }

    async fn renew(&self, leases: &[Lease], ttl: Duration) -> Result<Vec<Lease>> {
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        let until = Instant::now() + ttl;
        let (names, holders, epochs) = columns(leases);
        let query = self
            .query_scalar(&self.statements().lease_renew)
            .bind(names)
            .bind(holders)
            .bind(epochs)
            .bind(ttl.as_secs_f64());
        let renewed: Vec<String> = self.values("renew leases", query).await?;
        let kept = leases.iter().filter(|lease| renewed.contains(&lease.name.0));
        Ok(kept.map(|lease| Lease { until, ..lease.clone() }).collect())
    }

    async fn release(&self, leases: &[Lease]) -> Result<()> {
        let (names, holders, epochs) = columns(leases);
        let query = self.query(&self.statements().lease_release).bind(names).bind(holders).bind(epochs);
        self.rows("release leases", query).await.map(drop)
    }

    async fn held(&self, prefix: &str) -> Result<Vec<LeaseName>> {
        let query = self.query_scalar(&self.statements().lease_held).bind(prefix);
        let names: Vec<String> = self.values("list leases", query).await?;
        Ok(names.into_iter().map(LeaseName).collect())
    }

    async fn lapsed(&self, prefix: &str) -> Result<Vec<Holder>> {
        let query = self.query_scalar(&self.statements().lease_lapsed).bind(prefix);
        let holders: Vec<String> = self.values("list leases", query).await?;
        Ok(holders.into_iter().map(Holder).collect())
    }
}

fn columns(leases: &[Lease]) -> (Vec<&str>, Vec<&str>, Vec<Epoch>) {
    (
        leases.iter().map(|lease| lease.name.0.as_str()).collect(),
        leases.iter().map(|lease| lease.holder.0.as_str()).collect(),
        leases.iter().map(|lease| lease.epoch).collect(),
    )
}
