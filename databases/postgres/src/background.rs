//! A task beside the calls, that never outlives the adapter.

use std::sync::{Mutex, PoisonError};

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

/// A task that runs at most once at a time: started when it is needed and does not run (any more, or because the
/// runtime it ran on has ended), and stopped when this is dropped.
#[derive(Default)]
pub(crate) struct Background(Mutex<Option<AbortHandle>>);

impl Background {
    pub(crate) fn ensure<F: Future<Output = ()> + Send + 'static>(&self, task: impl FnOnce() -> F) {
        // Outside of a runtime nobody could run it; whatever it does, calls do not depend on it.
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
