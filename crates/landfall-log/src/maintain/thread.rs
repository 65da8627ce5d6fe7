//! The maintenance thread of an open log: runs retention and compaction periodically.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use landfall_core::{Error, ErrorKind, Result};
use tracing::warn;

use crate::log::WeakLog;

/// The handle to the thread, which ends with the log.
#[derive(Debug)]
pub(crate) struct MaintenanceThread {
    stop: Mutex<Option<mpsc::Sender<()>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl MaintenanceThread {
    pub(crate) fn start(log: WeakLog, every: Duration) -> Result<Self> {
        let unavailable = |what: &'static str| {
            move |error: std::io::Error| Error::new(ErrorKind::Unavailable, what).with_source(error)
        };
        let (stop, stopped) = mpsc::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.map_err(unavailable("cannot start the maintenance runtime"))?;
        let work = move || {
            while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                let Some(log) = log.upgrade() else { break };
                // A stopped log has already reported its failure.
                if log.health().is_ok()
                    && let Err(error) = runtime.block_on(log.maintain())
                {
                    warn!(%error, "maintenance failed, retrying at the next interval");
                }
            }
        };
        let thread = std::thread::Builder::new().name("landfall-log-maintenance".into()).spawn(work);
        let thread = thread.map_err(unavailable("cannot start the maintenance thread"))?;
        Ok(Self { stop: Mutex::new(Some(stop)), thread: Mutex::new(Some(thread)) })
    }

    /// Waits for the running round and prevents further ones.
    pub(crate) async fn close(&self) {
        if let Some(thread) = self.stop() {
            // The panic hook has already reported a panic.
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }

    /// Prevents further rounds. The thread ends after the running one.
    fn stop(&self) -> Option<JoinHandle<()>> {
        drop(self.stop.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.thread.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for MaintenanceThread {
    /// Waits for the running round, so that the caller can reopen the log after dropping it.
    fn drop(&mut self) {
        if let Some(thread) = self.stop() {
            let _ = thread.join();
        }
    }
}
