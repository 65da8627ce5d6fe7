//! A background task that does not outlive the adapter.

use std::sync::{Mutex, PoisonError};

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

/// A task of which at most one instance runs. It is aborted when this is dropped.
#[derive(Default)]
pub(crate) struct Background(Mutex<Option<AbortHandle>>);

impl Background {
    /// Starts the task unless it runs. It may have ended, also because its runtime was shut down.
    pub(crate) fn ensure<F: Future<Output = ()> + Send + 'static>(&self, task: impl FnOnce() -> F) {
        // Without a runtime the task cannot run, and no call depends on it.
        let Ok(runtime) = Handle::try_current() else { return };
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if running.as_ref().is_none_or(AbortHandle::is_finished) {
            *running = Some(runtime.spawn(task()).abort_handle());
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(task) = self.0.get_mut().unwrap_or_else(PoisonError::into_inner) {
            task.abort();
        }
    }
}
