//! The thread that maintains an open log, every so often.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use landfall_core::{Error, ErrorKind, Result};
use tracing::warn;

use crate::log::WeakLog;

/// Ends with the log.
#[derive(Debug)]
pub(crate) struct Keeper {
    stop: Mutex<Option<mpsc::Sender<()>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Keeper {
    pub(crate) fn start(log: WeakLog, every: Duration) -> Result<Self> {
        let unavailable = |what: &'static str| {
            move |error: std::io::Error| Error::new(ErrorKind::Unavailable, what).with_source(error)
        };
        let (stop, stopped) = mpsc::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.map_err(unavailable("cannot start a runtime"))?;
        let work = move || {
            while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                let Some(log) = log.upgrade() else { break };
                // One that has stopped taking messages has said so.
                if log.health().is_ok()
                    && let Err(error) = runtime.block_on(log.maintain())
                {
                    warn!(%error, "a round of maintenance failed; the next one tries again");
                }
            }
        };
        let thread = std::thread::Builder::new().name("landfall-log-keeper".into()).spawn(work);
        let thread = thread.map_err(unavailable("cannot start a thread"))?;
        Ok(Self { stop: Mutex::new(Some(stop)), thread: Mutex::new(Some(thread)) })
    }

    /// Waits for the round that is under way, and lets no other begin.
    pub(crate) async fn close(&self) {
        if let Some(thread) = self.stop() {
            // A panic was reported by the thread itself.
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }

    /// Lets no other round begin. The thread ends with the one that is under way.
    fn stop(&self) -> Option<JoinHandle<()>> {
        drop(self.stop.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.thread.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Keeper {
    /// Waits for the round that is under way, so that whoever dropped the log can open it again.
    fn drop(&mut self) {
        if let Some(thread) = self.stop() {
            let _ = thread.join();
        }
    }
}
