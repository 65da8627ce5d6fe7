//! A server that the tests of a process share, and that one of them may stop and start while the others stand aside.

use std::sync::Arc;

use tokio::sync::{OwnedRwLockReadGuard, RwLock};

/// Started with the first user, stopped with the process. Kept in a `static`.
#[derive(Debug)]
pub struct Restartable<S: 'static> {
    server: RwLock<Option<Option<Arc<RwLock<S>>>>>,
}

/// The server is up as long as this is held.
pub type InUse<S> = OwnedRwLockReadGuard<S>;

impl<S: Send + Sync> Restartable<S> {
    #[allow(clippy::new_without_default, reason = "only ever a static")]
    pub const fn new() -> Self {
        Self { server: RwLock::const_new(None) }
    }

    /// The server, started with `start` if nobody did before; `None` if that gave none, now or earlier.
    pub async fn use_with(&self, start: impl AsyncFnOnce() -> Option<S>) -> Option<InUse<S>> {
        let mut server = self.server.write().await;
        if server.is_none() {
            *server = Some(start().await.map(|server| Arc::new(RwLock::new(server))));
        }
        let server = server.as_ref()?.clone()?;
        Some(server.read_owned().await)
    }

    /// Waits until nobody else uses it, or all who do wait for the same, runs `restart`, and uses it again.
    pub async fn restart(&self, used: InUse<S>, restart: impl AsyncFnOnce(&S)) -> InUse<S> {
        let server = OwnedRwLockReadGuard::rwlock(&used).clone();
        drop(used);
        let alone = server.write_owned().await;
        restart(&alone).await;
        alone.downgrade()
    }
}
