//! A task beside the work of a relay or a consumer, without which that work would stand still in silence.

use landfall_core::{Error, ErrorKind, Result};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Neither outlives the other in silence: a panic in it cancels the token that both of them watch, and so does dropping
/// this, which happens when the work is given up half-way.
#[derive(Debug)]
pub(crate) struct Companion<T> {
    what: &'static str,
    task: JoinHandle<T>,
    _given_up: DropGuard,
}

impl<T: Send + 'static> Companion<T> {
    /// `what` it does, for the sentence that tells of its end.
    pub(crate) fn spawn(
        what: &'static str,
        stop: &CancellationToken,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Self {
        let guard = stop.clone().drop_guard();
        let task = tokio::spawn(async move {
            let done = work.await;
            guard.disarm();
            done
        });
        Self { what, task, _given_up: stop.clone().drop_guard() }
    }

    /// Waits until it has come to its end; an error if that was none of its own.
    pub(crate) async fn end(self) -> Result<T> {
        let sentence = || format!("what {} ended by itself, which is a fault in the program", self.what);
        self.task.await.map_err(|cause| Error::new(ErrorKind::Internal, sentence()).with_source(cause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_stops_the_others_and_is_told() {
        let stop = CancellationToken::new();
        let (told, tell) = tokio::sync::oneshot::channel();
        let done = Companion::spawn("counts", &stop, async { told.send(7).unwrap() });
        assert_eq!(tell.await.unwrap(), 7);
        assert!(!stop.is_cancelled(), "it came to its end");
        done.end().await.unwrap();
        let stop = CancellationToken::new();
        let broken = Companion::spawn("counts", &stop, async { panic!("it cannot count") });
        stop.cancelled().await;
        let error = broken.end().await.map(|()| 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert!(error.to_string().contains("what counts ended by itself"), "{error}");
    }

    #[tokio::test]
    async fn it_does_not_outlive_work_that_was_given_up() {
        let stop = CancellationToken::new();
        let (stopped, stops) = tokio::sync::oneshot::channel();
        let watched = stop.clone();
        drop(Companion::spawn("waits", &stop, async move {
            watched.cancelled().await;
            stopped.send(()).unwrap();
        }));
        stops.await.unwrap();
    }
}
