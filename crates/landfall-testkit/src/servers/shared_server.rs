//! A server shared by the tests of a process, which one test at a time may use exclusively to disturb it.

use std::sync::Arc;

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use crate::not_run::{current_test, not_run};

/// A shared server in a `static`. The first user starts it; it stops with the process.
///
/// A test must acquire it once and keep the guard to its end. A second acquisition can deadlock with a test that waits
/// for exclusive use.
#[derive(Debug)]
pub struct SharedServer<S: 'static> {
    server: RwLock<Option<Option<Arc<RwLock<S>>>>>,
}

/// Shared use: the server stays up while this guard is held.
pub type SharedGuard<S> = OwnedRwLockReadGuard<S>;

/// Exclusive use while this guard is held. The server must be up again when it is dropped.
pub type ExclusiveGuard<S> = OwnedRwLockWriteGuard<S>;

impl<S: Send + Sync> SharedServer<S> {
    #[allow(clippy::new_without_default, reason = "only ever a static")]
    pub const fn new() -> Self {
        Self { server: RwLock::const_new(None) }
    }

    /// Returns the server for shared use, started with `start` on first use. Returns `None` if `start` did.
    pub async fn shared_with(&self, start: impl AsyncFnOnce() -> Option<S>) -> Option<SharedGuard<S>> {
        Some(self.started(start).await?.read_owned().await)
    }

    /// Returns the server for exclusive use: to kill it, pause it or change its configuration.
    pub async fn exclusive_with(&self, start: impl AsyncFnOnce() -> Option<S>) -> Option<ExclusiveGuard<S>> {
        Some(self.started(start).await?.write_owned().await)
    }

    /// Waits until no other test uses the server, runs `restart`, and returns it for shared use.
    ///
    /// Gives up its own shared use while it waits, so that several tests can wait for a restart at once.
    pub async fn restart(&self, used: SharedGuard<S>, restart: impl AsyncFnOnce(&S)) -> SharedGuard<S> {
        let server = OwnedRwLockReadGuard::rwlock(&used).clone();
        drop(used);
        let exclusive = server.write_owned().await;
        restart(&exclusive).await;
        exclusive.downgrade()
    }

    async fn started(&self, start: impl AsyncFnOnce() -> Option<S>) -> Option<Arc<RwLock<S>>> {
        let mut server = self.server.write().await;
        match &*server {
            None => *server = Some(start().await.map(|server| Arc::new(RwLock::new(server)))),
            // `start` reported only the first test.
            Some(None) => not_run(&current_test(), "the server did not start for an earlier test of this program"),
            Some(Some(_)) => {}
        }
        server.as_ref()?.clone()
    }
}
