//! Limits on the calls in progress and the callers waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use landfall::retry::{Dependency, Options};
use landfall::{ErrorCode, Failure, Verdict};
use tokio::task::JoinSet;

use crate::fixture::{SECOND, options};

/// Two calls at once and three waiting for at most five seconds.
fn narrow() -> Dependency {
    Dependency::new("search", Options { concurrency: 2, waiting: 3, longest_wait: 5 * SECOND, ..options() }).unwrap()
}

/// Makes `count` concurrent calls of `seconds` each; returns the successes, the highest concurrency and the failures.
async fn rush(dependency: &Dependency, count: usize, seconds: u32) -> (usize, usize, Vec<Failure>) {
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut tasks = JoinSet::new();
    for _ in 0..count {
        let (dependency, running, most) = (dependency.clone(), running.clone(), most.clone());
        tasks.spawn(async move {
            let call = || async {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(seconds * SECOND).await;
                running.fetch_sub(1, Ordering::SeqCst);
                Ok::<_, Failure>(())
            };
            dependency.call(call).await
        });
    }
    let results = tasks.join_all().await;
    let failures: Vec<Failure> = results.iter().filter_map(|result| result.clone().err()).collect();
    (count - failures.len(), most.load(Ordering::SeqCst), failures)
}

#[tokio::test(start_paused = true)]
async fn bulkhead_rejects_callers_beyond_its_limits() {
    let dependency = narrow();
    let (succeeded, most, failures) = rush(&dependency, 9, 1).await;
    assert_eq!((succeeded, most, failures.len()), (5, 2, 4));
    assert!(failures.iter().all(|f| f.code == ErrorCode::BULKHEAD_FULL && f.verdict == Verdict::Wait));
    assert_eq!((dependency.state().running, dependency.state().waiting), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn bulkhead_rejects_after_the_longest_wait() {
    let dependency = narrow();
    let (succeeded, _, failures) = rush(&dependency, 4, 8).await;
    assert_eq!((succeeded, failures.len()), (2, 2));
    assert_eq!((dependency.state().running, dependency.state().waiting), (0, 0));
    let (succeeded, ..) = rush(&dependency, 5, 1).await;
    assert_eq!(succeeded, 5);
}
