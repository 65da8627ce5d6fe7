//! A background task that a relay or a consumer depends on.

use landfall_core::{Error, ErrorKind, Result};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

/// A spawned task that shares a cancellation token with its owner.
///
/// Neither outlives the other unnoticed: a panic in the task cancels the token, and so does dropping this value, which
/// happens when the owner's future is dropped.
#[derive(Debug)]
pub(crate) struct SupervisedTask<T> {
    name: &'static str,
    task: JoinHandle<T>,
    _cancel_on_drop: DropGuard,
}

impl<T: Send + 'static> SupervisedTask<T> {
    /// Spawns `work`. `name` appears in the error of [`SupervisedTask::join`].
    pub(crate) fn spawn(
        name: &'static str,
        stop: &CancellationToken,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Self {
        let cancel_on_panic = stop.clone().drop_guard();
        let task = tokio::spawn(async move {
            let output = work.await;
            cancel_on_panic.disarm();
            output
        });
        Self { name, task, _cancel_on_drop: stop.clone().drop_guard() }
    }

    /// Waits for the task to finish. Fails if it panicked.
    pub(crate) async fn join(self) -> Result<T> {
        let text = || format!("{} task exited unexpectedly; this is a bug", self.name);
        self.task.await.map_err(|cause| Error::new(ErrorKind::Internal, text()).with_source(cause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn panic_cancels_the_token_and_is_reported() {
        let stop = CancellationToken::new();
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let healthy = SupervisedTask::spawn("counting", &stop, async { sender.send(7).unwrap() });
        assert_eq!(receiver.await.unwrap(), 7);
        assert!(!stop.is_cancelled(), "a task that returns does not cancel the token");
        healthy.join().await.unwrap();
        let stop = CancellationToken::new();
        let broken = SupervisedTask::spawn("counting", &stop, async { panic!("it cannot count") });
        stop.cancelled().await;
        let error = broken.join().await.map(|()| 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert!(error.to_string().contains("counting task exited unexpectedly"), "{error}");
    }

    #[tokio::test]
    async fn task_stops_when_its_owner_is_dropped() {
        let stop = CancellationToken::new();
        let (stopped, stops) = tokio::sync::oneshot::channel();
        let watched = stop.clone();
        drop(SupervisedTask::spawn("waiting", &stop, async move {
            watched.cancelled().await;
            stopped.send(()).unwrap();
        }));
        stops.await.unwrap();
    }
}
