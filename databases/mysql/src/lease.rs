//! Leases: one row each, compared and changed on the server's clock.
//!
//! A released lease keeps its row and its epoch, so that no epoch is used twice.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use landfall_core::adapter::{Epoch, Lease, LeaseName};
use landfall_core::{Database, Holder, Leases, Result};

use crate::MySql;
use crate::connection::retry::retry_deadlocks;
use crate::outbox::settle::micros;
use crate::statements::SHARDS;

#[async_trait]
impl Leases for MySql {
    async fn acquire(&self, name: &LeaseName, holder: &Holder, ttl: Duration) -> Result<Option<Lease>> {
        // Measured before the request: on the server the lease can only expire later.
        let until = Instant::now() + ttl;
        let epoch = retry_deadlocks(|| self.try_acquire(name, holder, ttl)).await?;
        Ok(epoch.map(|epoch| Lease { name: name.clone(), holder: holder.clone(), epoch, until }))
    }

    async fn renew(&self, leases: &[Lease], ttl: Duration) -> Result<Vec<Lease>> {
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        let until = Instant::now() + ttl;
        let renewed = retry_deadlocks(|| self.renew_all(leases, ttl)).await?;
        let kept = leases.iter().filter(|lease| renewed.contains(&&lease.name));
        Ok(kept.map(|lease| Lease { until, ..lease.clone() }).collect())
    }

    async fn release(&self, leases: &[Lease]) -> Result<()> {
        if leases.is_empty() {
            return Ok(());
        }
        retry_deadlocks(|| self.release_all(leases)).await
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
    /// Updates the lease's row, or inserts it. Each statement is its own transaction; the row exists nearly always.
    async fn try_acquire(&self, name: &LeaseName, holder: &Holder, ttl: Duration) -> Result<Option<Epoch>> {
        let doing = "acquire a lease";
        let misdated: Option<String> = sqlx::query_scalar(self.statements().lease_misdated.text())
            .bind(&name.0)
            .fetch_optional(self.pool())
            .await
            .map_err(self.could_not(doing))?;
        let taken = sqlx::query(self.statements().lease_take.text())
            .bind(&holder.0)
            .bind(micros(ttl))
            .bind(millis(ttl))
            .bind(&name.0)
            .bind(&holder.0)
            .execute(self.pool())
            .await
            .map_err(self.could_not(doing))?;
        if taken.rows_affected() > 0 {
            let epoch = taken.last_insert_id() as Epoch;
            if let Some(previous) = misdated {
                tracing::warn!(lease = %name.0, %previous, epoch, "took over a lease written under a wrong clock");
            }
            return Ok(Some(epoch));
        }
        let made = sqlx::query(self.statements().lease_make.text())
            .bind(&name.0)
            .bind(&holder.0)
            .bind(micros(ttl))
            .bind(millis(ttl))
            .execute(self.pool())
            .await
            .map_err(self.could_not(doing))?;
        Ok((made.rows_affected() > 0).then_some(1))
    }

    /// A few round trips for any number of leases: a renewal must take much less time than a lease lasts.
    async fn renew_all<'a>(&self, leases: &'a [Lease], ttl: Duration) -> Result<Vec<&'a LeaseName>> {
        let doing = "renew leases";
        let mut renewed = Vec::with_capacity(leases.len());
        let mut transaction = self.begin().await?;
        for chunk in sorted_by_name(leases).chunks(usize::from(SHARDS)) {
            let names: Vec<&str> = chunk.iter().map(|lease| lease.name.0.as_str()).collect();
            let lock = sqlx::query_as(self.statements().lock_leases_to_renew.text());
            let lock = padded(&names).fold(lock, |query, name| query.bind(name));
            let found: Vec<LeaseRow> = lock.fetch_all(&mut *transaction).await.map_err(self.could_not(doing))?;
            let held: Vec<&LeaseName> =
                chunk.iter().filter(|lease| is_held(lease, &found)).map(|lease| &lease.name).collect();
            if held.is_empty() {
                continue;
            }
            let renew = sqlx::query(self.statements().lease_renew.text()).bind(micros(ttl)).bind(millis(ttl));
            let renew = padded(&held).fold(renew, |query, name| query.bind(&name.0));
            renew.execute(&mut *transaction).await.map_err(self.could_not(doing))?;
            renewed.extend(held);
        }
        self.commit(transaction).await?;
        Ok(renewed)
    }

    async fn release_all(&self, leases: &[Lease]) -> Result<()> {
        let mut transaction = self.begin().await?;
        for lease in sorted_by_name(leases) {
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

/// Name, holder and epoch of a lease, as the table has them.
pub(crate) type LeaseRow = (String, Option<String>, i64);

/// Returns whether `lease` is among `found`, under the same holder and epoch.
pub(crate) fn is_held(lease: &Lease, found: &[LeaseRow]) -> bool {
    found.iter().any(|(name, holder, epoch)| {
        *name == lease.name.0 && holder.as_ref() == Some(&lease.holder.0) && *epoch == lease.epoch
    })
}

/// Pads `given` with its last element to the number of shards, so that one statement serves every number of leases.
pub(crate) fn padded<T: Copy>(given: &[T]) -> impl Iterator<Item = T> + '_ {
    given.iter().chain(std::iter::repeat_n(given.last(), usize::from(SHARDS)).flatten()).copied().take(SHARDS.into())
}

/// The duration as the column `ttl_ms` has it, rounded up.
fn millis(ttl: Duration) -> i64 {
    micros(ttl).div_euclid(1000) + 1
}

/// Sorts leases by name. They are locked in this order everywhere, so that there are no deadlocks.
fn sorted_by_name(leases: &[Lease]) -> Vec<&Lease> {
    let mut sorted: Vec<&Lease> = leases.iter().collect();
    sorted.sort_by(|one, other| one.name.cmp(&other.name));
    sorted
}
