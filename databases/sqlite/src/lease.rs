//! Leases: exclusive ownership that expires on SQLite's clock.
//!
//! Every change is its own transaction, committed before the call returns. `until` is measured before the transaction
//! begins, so a holder never considers its lease valid for longer than the database does.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use landfall_core::adapter::{Lease, LeaseName};
use landfall_core::{Database, Holder, Leases, Result};

use crate::Sqlite;
use crate::outbox::settle::millis;

#[async_trait]
impl Leases for Sqlite {
    async fn acquire(&self, name: &LeaseName, holder: &Holder, ttl: Duration) -> Result<Option<Lease>> {
        let asked = Instant::now();
        let mut transaction = self.begin().await?;
        let misdated: Option<String> = sqlx::query_scalar(self.statements().lease_misdated.text())
            .bind(&name.0)
            .fetch_optional(&mut *transaction)
            .await
            .map_err(self.cannot("acquire a lease"))?;
        let epochs: Vec<i64> = sqlx::query_scalar(self.statements().lease_acquire.text())
            .bind(&name.0)
            .bind(&holder.0)
            .bind(millis(ttl))
            .fetch_all(&mut *transaction)
            .await
            .map_err(self.cannot("acquire a lease"))?;
        let Some(epoch) = epochs.first().copied() else {
            return Ok(None);
        };
        self.commit(transaction).await?;
        if let Some(previous) = misdated {
            tracing::warn!(lease = %name.0, %previous, epoch, "took over a lease written under a wrong clock");
        }
        Ok(Some(Lease { name: name.clone(), holder: holder.clone(), epoch, until: asked + ttl }))
    }

    async fn renew(&self, leases: &[Lease], ttl: Duration) -> Result<Vec<Lease>> {
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        let asked = Instant::now();
        let mut renewed = Vec::with_capacity(leases.len());
        let mut transaction = self.begin().await?;
        for lease in leases {
            let done = sqlx::query(self.statements().lease_renew.text())
                .bind(&lease.name.0)
                .bind(&lease.holder.0)
                .bind(lease.epoch)
                .bind(millis(ttl))
                .execute(&mut *transaction)
                .await
                .map_err(self.cannot("renew a lease"))?;
            if done.rows_affected() > 0 {
                renewed.push(Lease { until: asked + ttl, ..lease.clone() });
            }
        }
        self.commit(transaction).await?;
        Ok(renewed)
    }

    async fn release(&self, leases: &[Lease]) -> Result<()> {
        if leases.is_empty() {
            return Ok(());
        }
        let mut transaction = self.begin().await?;
        for lease in leases {
            sqlx::query(self.statements().lease_release.text())
                .bind(&lease.name.0)
                .bind(&lease.holder.0)
                .bind(lease.epoch)
                .execute(&mut *transaction)
                .await
                .map_err(self.cannot("release a lease"))?;
        }
        self.commit(transaction).await
    }

    async fn held(&self, prefix: &str) -> Result<Vec<LeaseName>> {
        let names: Vec<String> = sqlx::query_scalar(self.statements().leases_held.text())
            .bind(prefix)
            .fetch_all(&self.inner.pool)
            .await
            .map_err(self.cannot("list leases"))?;
        Ok(names.into_iter().map(LeaseName).collect())
    }

    async fn lapsed(&self, prefix: &str) -> Result<Vec<Holder>> {
        let holders: Vec<String> = sqlx::query_scalar(self.statements().leases_lapsed.text())
            .bind(prefix)
            .fetch_all(&self.inner.pool)
            .await
            .map_err(self.cannot("list leases"))?;
        Ok(holders.into_iter().map(Holder).collect())
    }
}
