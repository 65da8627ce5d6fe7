//! Waits at start for servers that are down, and reports meanwhile which part is missing.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::listener::{self, Bounds};
use crate::error::{Error, Result};

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The parts that the daemon waits for, by name, with the error of each.
#[derive(Clone)]
pub(crate) struct Waiting {
    parts: Arc<Mutex<BTreeMap<&'static str, String>>>,
    /// Where `/readyz` answers meanwhile.
    address: SocketAddr,
}

impl Waiting {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self { parts: Arc::default(), address }
    }

    pub(crate) fn parts(&self) -> BTreeMap<&'static str, String> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets or removes the error of `part`, and returns whether that is a change.
    fn set(&self, part: &'static str, error: Option<String>) -> bool {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        match error {
            Some(error) => parts.insert(part, error.clone()) != Some(error),
            None => parts.remove(part).is_some(),
        }
    }

    /// Runs `open` until it succeeds or fails for a reason that does not pass. Logs each change, not each attempt.
    pub(super) async fn wait_for<T>(&self, part: &'static str, mut open: impl AsyncFnMut() -> Result<T>) -> Result<T> {
        let mut pause = FIRST_PAUSE;
        loop {
            match open().await {
                Ok(opened) => {
                    if self.set(part, None) {
                        tracing::info!(part, "available, starting");
                    }
                    return Ok(opened);
                }
                Err(Error::Outage(error)) => {
                    if self.set(part, Some(error.clone())) {
                        tracing::warn!(address = %self.address, part, %error, "unavailable at start, waiting");
                    }
                    tokio::time::sleep(pause).await;
                    pause = (2 * pause).min(LONGEST_PAUSE);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// The HTTP server until the daemon has started.
pub(super) struct Reception {
    task: JoinHandle<()>,
    stop: CancellationToken,
}

impl Reception {
    pub(super) fn open(listener: Arc<TcpListener>, routes: Router, bounds: Bounds, stop: &CancellationToken) -> Self {
        let stop = stop.child_token();
        let task = tokio::spawn(listener::serve(listener, routes, bounds, stop.clone()));
        Self { task, stop }
    }

    /// Finishes the requests in flight, so that the daemon's own routes answer the next ones.
    pub(super) async fn close(self) {
        self.stop.cancel();
        // The runtime has logged a panic of this task.
        let _ = self.task.await;
    }
}
