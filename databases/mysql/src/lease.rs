//! Leases: one row each, compared and changed on the server's clock.
//!
//! A lease that was given back keeps its row and its epoch, so an epoch is never used twice.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use landfall_core::{Database, Epoch, Holder, Lease, LeaseName, Leases, Result};

use crate::MySql;
use crate::retry::retried;
use crate::settle::micros;

#[async_trait]
impl Leases for MySql {
    async fn acquire(&self, name: &LeaseName, holder: &Holder, ttl: Duration) -> Result<Option<Lease>> {
        // Before the request is sent: what the server believes can only be later.
        let until = Instant::now() + ttl;
        let epoch = retried(|| self.take(name, holder, ttl)).await?;
        Ok(epoch.map(|epoch| Lease { name: name.clone(), holder: holder.clone(), epoch, until }))
    }

    async fn renew(&self, leases: &[Lease], ttl: Duration) -> Result<Vec<Lease>> {
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        let until = Instant::now() + ttl;
        let renewed = retried(|| self.renew_all(leases, ttl)).await?;
        let kept = leases.iter().filter(|lease| renewed.contains(&&lease.name));
        Ok(kept.map(|lease| Lease { until, ..lease.clone() }).collect())
    }

    async fn release(&self, leases: &[Lease]) -> Result<()> {
        if leases.is_empty() {
            return Ok(());
        }
        retried(|| self.release_all(leases)).await
    }

    async fn held(&self, prefix: &str) -> Result<Vec<LeaseName>> {
        let names: Vec<String> = sqlx::query_scalar(self.statements().lease_held.text())
            .bind(prefix)
            .bind(prefix)
            .fetch_all(self.pool())
            .await
            .map_err(self.could_not("list leases"))?;
        Ok(names.into_iter().map(LeaseName).collect())
    }

    async fn lapsed(&self, prefix: &str) -> Result<Vec<Holder>> {
        let holders: Vec<String> = sqlx::query_scalar(self.statements().lease_lapsed.text())
            .bind(prefix)
            .bind(prefix)
            .fetch_all(self.pool())
            .await
            .map_err(self.could_not("list leases"))?;
        Ok(holders.into_iter().map(Holder).collect())
    }
}

impl MySql {
    /// Each statement is a transaction of its own: the first one finds the lease's row nearly always.
    async fn take(&self, name: &LeaseName, holder: &Holder, ttl: Duration) -> Result<Option<Epoch>> {
        let doing = "acquire a lease";
        let taken = sqlx::query(self.statements().lease_take.text())
            .bind(&holder.0)
            .bind(micros(ttl))
            .bind(&name.0)
            .bind(&holder.0)
            .execute(self.pool())
            .await
            .map_err(self.could_not(doing))?;
        if taken.rows_affected() > 0 {
            return Ok(Some(taken.last_insert_id() as Epoch));
        }
        let made = sqlx::query(self.statements().lease_make.text())
            .bind(&name.0)
            .bind(&holder.0)
            .bind(micros(ttl))
            .execute(self.pool())
            .await
            .map_err(self.could_not(doing))?;
        Ok((made.rows_affected() > 0).then_some(1))
    }

    async fn renew_all<'a>(&self, leases: &'a [Lease], ttl: Duration) -> Result<Vec<&'a LeaseName>> {
        let mut renewed = Vec::with_capacity(leases.len());
        let mut transaction = self.begin().await?;
        for lease in in_order(leases) {
            let done = sqlx::query(self.statements().lease_renew.text())
                .bind(micros(ttl))
                .bind(&lease.name.0)
                .bind(&lease.holder.0)
                .bind(lease.epoch)
                .execute(&mut *transaction)
                .await
                .map_err(self.could_not("renew leases"))?;
            if done.rows_affected() > 0 {
                renewed.push(&lease.name);
            }
        }
        self.commit(transaction).await?;
        Ok(renewed)
    }

    async fn release_all(&self, leases: &[Lease]) -> Result<()> {
        let mut transaction = self.begin().await?;
        for lease in in_order(leases) {
            sqlx::query(self.statements().lease_release.text())
                .bind(&lease.name.0)
                .bind(&lease.holder.0)
                .bind(lease.epoch)
                .execute(&mut *transaction)
                .await
                .map_err(self.could_not("release leases"))?;
        }
        self.commit(transaction).await
    }
}

/// In order of name, as everywhere, so that nobody waits in a circle.
fn in_order(leases: &[Lease]) -> Vec<&Lease> {
    let mut sorted: Vec<&Lease> = leases.iter().collect();
    sorted.sort_by(|one, other| one.name.cmp(&other.name));
    sorted
}
