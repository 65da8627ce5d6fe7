//! Distributed locks on leases: owner-checked release, renewal and a fencing token.

use std::sync::Arc;
use std::time::Duration;

use landfall_core::adapter::{Epoch, Lease, LeaseName};
use landfall_core::{Error, ErrorKind, Holder, Leases, Result};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::call_deadline::CallDeadline;

/// Locks by name, on the leases of a database, or on `RedisLeases` where a lock only saves work.
///
/// A lock keeps two processes from working at the same time, as long as both are alive and on time. A holder that is
/// paused may wake up after its lock was given to another: only [`Lock::fencing_token`], compared in the protected
/// write, keeps it from doing harm. And a lock does not make a repeat harmless: use a record for that.
///
/// Each name keeps one row in the database, with the last token, so use names of things that stay.
#[derive(Clone)]
pub struct Locks {
    leases: Arc<dyn Leases>,
    ttl: Duration,
}

/// A held lock. It is renewed until it is released or dropped, or until another holder has it.
#[derive(Debug)]
pub struct Lock {
    leases: SharedLeases,
    lease: watch::Receiver<Option<Lease>>,
    epoch: Epoch,
    /// Stops the renewal.
    _renewal: DropGuard,
}

/// The longest name of a lock, in characters.
const MAX_NAME_CHARACTERS: usize = 200;

/// The first and the longest pause between two attempts to get a lock.
const POLL: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(250));

impl Locks {
    /// Locks expire 30 seconds after their last renewal.
    pub fn new(leases: Arc<dyn Leases>) -> Self {
        Self { leases, ttl: Duration::from_secs(30) }
    }

    /// Sets how long a lock outlives a holder that crashed.
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Takes the lock if it is free, and returns `None` if another holder has it. Every call is a holder of its own.
    pub async fn try_lock(&self, name: &str) -> Result<Option<Lock>> {
        let lease = lease_name(name)?;
        let holder = Holder(format!("{}-{:032x}", std::process::id(), rand::random::<u128>()));
        let acquired = self.leases.acquire(&lease, &holder, self.ttl);
        let Some(lease) = CallDeadline::for_lease(self.ttl).run(acquired).await? else { return Ok(None) };
        Ok(Some(Lock::renewed(self.leases.clone(), lease, self.ttl)))
    }

    /// Takes the lock, and waits at most `wait` for another holder. Fails with kind `InUse` after that.
    pub async fn lock(&self, name: &str, wait: Duration) -> Result<Lock> {
        let deadline = Instant::now() + wait;
        let mut pause = POLL.0;
        loop {
            if let Some(lock) = self.try_lock(name).await? {
                return Ok(lock);
            }
            let rest = deadline.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                let text = format!("the lock {name:?} was held by others for {wait:?}; try again later");
                return Err(Error::new(ErrorKind::InUse, text));
            }
            sleep(pause.min(rest)).await;
            pause = (pause * 2).min(POLL.1);
        }
    }
}

impl Lock {
    fn renewed(leases: Arc<dyn Leases>, lease: Lease, ttl: Duration) -> Self {
        let (epoch, stop) = (lease.epoch, CancellationToken::new());
        let (sender, receiver) = watch::channel(Some(lease));
        tokio::spawn(renew(leases.clone(), sender, ttl, stop.clone()));
        Self { leases: SharedLeases(leases), lease: receiver, epoch, _renewal: stop.drop_guard() }
    }

    /// The fencing token: higher than that of every earlier holder. Compare it in the protected write:
    /// `UPDATE … SET …, lock_token = token WHERE id = … AND lock_token <= token`.
    pub fn fencing_token(&self) -> Epoch {
        self.epoch
    }

    /// Returns whether the lock is held, by the local clock. It may be lost at any later moment.
    pub fn is_held(&self) -> bool {
        self.lease.borrow().as_ref().is_some_and(Lease::is_live)
    }

    /// Completes when the lock is lost: another holder may have it.
    pub async fn lost(&mut self) {
        loop {
            let until = match &*self.lease.borrow_and_update() {
                None => return,
                Some(lease) if !lease.is_live() => return,
                Some(lease) => lease.until,
            };
            tokio::select! {
                () = tokio::time::sleep_until(until.into()) => {}
                changed = self.lease.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Releases the lock, if it is still this holder's, so that another one need not wait for its expiry. Idempotent
    /// for the database: another holder's lock is never released.
    pub async fn release(self) -> Result<()> {
        let lease = self.lease.borrow().clone();
        let leases = self.leases.0.clone();
        // Before the release, so that no renewal follows it.
        drop(self);
        match lease {
            Some(lease) => CallDeadline::STATEMENT.run(leases.release(&[lease])).await,
            None => Ok(()),
        }
    }
}

struct SharedLeases(Arc<dyn Leases>);

impl std::fmt::Debug for SharedLeases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Leases")
    }
}

impl std::fmt::Debug for Locks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Locks").field("ttl", &self.ttl).finish_non_exhaustive()
    }
}

/// Renews the lease every third of its time until `stop`. After that the lease expires by itself.
async fn renew(leases: Arc<dyn Leases>, current: watch::Sender<Option<Lease>>, ttl: Duration, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = sleep(ttl / 3) => {}
        }
        let Some(lease) = current.borrow().clone() else { return };
        match CallDeadline::for_lease(ttl).run(leases.renew(std::slice::from_ref(&lease), ttl)).await {
            Ok(mut renewed) => match renewed.pop() {
                Some(renewed) => drop(current.send_replace(Some(renewed))),
                None => {
                    tracing::warn!(lease = %lease.name.0, "lock lost to another holder");
                    current.send_replace(None);
                    return;
                }
            },
            Err(error) => tracing::warn!(%error, lease = %lease.name.0, "lock not renewed, retrying"),
        }
    }
}

fn lease_name(name: &str) -> Result<LeaseName> {
    if name.is_empty() || name.chars().count() > MAX_NAME_CHARACTERS || name.chars().any(char::is_control) {
        let text =
            format!("the name of a lock must have 1 to {MAX_NAME_CHARACTERS} characters without control characters");
        return Err(Error::invalid(text));
    }
    Ok(LeaseName(format!("lock/{name}")))
}
