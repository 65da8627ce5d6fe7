//! A server that the tests of a process share, and that one of them may disturb while the others stand aside.

use std::sync::Arc;

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

/// Started with the first user, stopped with the process. Kept in a `static`.
///
/// A test takes it once and keeps it to its end: whoever takes it a second time may wait for somebody who waits to be
/// alone with it.
#[derive(Debug)]
pub struct Restartable<S: 'static> {
    server: RwLock<Option<Option<Arc<RwLock<S>>>>>,
}

/// The server is up as long as this is held.
pub type InUse<S> = OwnedRwLockReadGuard<S>;

/// Nobody else uses the server as long as this is held. It must be up again afterwards.
pub type Alone<S> = OwnedRwLockWriteGuard<S>;

impl<S: Send + Sync> Restartable<S> {
    #[allow(clippy::new_without_default, reason = "only ever a static")]
    pub const fn new() -> Self {
        Self { server: RwLock::const_new(None) }
    }

    /// The server, started with `start` if nobody did before; `None` if that gave none, now or earlier.
    pub async fn use_with(&self, start: impl AsyncFnOnce() -> Option<S>) -> Option<InUse<S>> {
        Some(self.started(start).await?.read_owned().await)
    }

    /// The same for one who kills it, pauses it or changes how it is set up.
    pub async fn alone_with(&self, start: impl AsyncFnOnce() -> Option<S>) -> Option<Alone<S>> {
        Some(self.started(start).await?.write_owned().await)
    }

    /// Waits until nobody else uses it, or all who do wait for the same, runs `restart`, and uses it again.
    pub async fn restart(&self, used: InUse<S>, restart: impl AsyncFnOnce(&S)) -> InUse<S> {
        let server = OwnedRwLockReadGuard::rwlock(&used).clone();
        drop(used);
        let alone = server.write_owned().await;
        restart(&alone).await;
        alone.downgrade()
    }

    async fn started(&self, start: impl AsyncFnOnce() -> Option<S>) -> Option<Arc<RwLock<S>>> {
        let mut server = self.server.write().await;
        if server.is_none() {
            *server = Some(start().await.map(|server| Arc::new(RwLock::new(server))));
        }
        server.as_ref()?.clone()
    }
}
