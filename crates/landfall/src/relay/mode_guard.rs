//! Keeps an unordered relay from working while an ordered one is registered.

use landfall_core::Result;
use landfall_core::adapter::Lease;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::registration::{Registration, RelayKind};
use super::shard_leases::PassLock;

/// Registers an unordered relay while no ordered one is registered.
pub(super) struct ModeGuard {
    registration: Registration,
    registered: watch::Sender<Option<Lease>>,
    pass: PassLock,
}

impl ModeGuard {
    pub(super) fn new(registration: Registration) -> Self {
        Self { registration, registered: watch::Sender::new(None), pass: PassLock::default() }
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Option<Lease>> {
        self.registered.subscribe()
    }

    pub(super) fn pass_lock(&self) -> PassLock {
        self.pass.clone()
    }

    pub(super) async fn run(mut self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            if let Err(error) = self.registration.deadline().run(self.renew()).await {
                tracing::warn!(%error, "registration not renewed; it will expire");
            }
            tokio::select! { () = tokio::time::sleep(self.registration.interval()) => {}, () = stop.cancelled() => {} }
        }
        self.deregister().await;
    }

    async fn renew(&mut self) -> Result<()> {
        let lease = self.registration.renew().await?;
        if self.registration.count(RelayKind::Ordered).await? == 0 {
            self.registered.send_replace(Some(lease));
        } else {
            tracing::warn!("an ordered relay works on this outbox; waiting until it stops");
            self.deregister().await;
        }
        Ok(())
    }

    async fn deregister(&mut self) {
        let _after_the_pass = self.pass.lock().await;
        self.registered.send_replace(None);
        if let Err(error) = self.registration.deadline().run(self.registration.release(Vec::new())).await {
            tracing::warn!(%error, "deregistration failed; the lease will expire");
        }
    }
}
