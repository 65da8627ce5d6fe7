//! So many at once, so many waiting, and no more.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use landfall::retry::{Dependency, Options};
use landfall::{ErrorCode, Failure, Verdict};
use tokio::task::JoinSet;

use crate::scene::{SECOND, options};

/// Two at once and three waiting, for five seconds at most.
fn narrow() -> Dependency {
    Dependency::new("search", Options { concurrency: 2, waiting: 3, longest_wait: 5 * SECOND, ..options() })
}

/// `count` calls at once that take `seconds` each: how many succeeded, and the most that ran together.
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
async fn two_run_three_wait_and_the_others_are_turned_away_without_spending_an_attempt() {
    let dependency = narrow();
    let (succeeded, most, failures) = rush(&dependency, 9, 1).await;
    assert_eq!((succeeded, most, failures.len()), (5, 2, 4));
    assert!(failures.iter().all(|f| f.code == ErrorCode::BULKHEAD_FULL && f.verdict == Verdict::Wait));
    assert_eq!((dependency.state().running, dependency.state().waiting), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn who_has_waited_too_long_is_turned_away_and_leaves_no_trace() {
    let dependency = narrow();
    let (succeeded, _, failures) = rush(&dependency, 4, 8).await;
    assert_eq!((succeeded, failures.len()), (2, 2));
    assert_eq!((dependency.state().running, dependency.state().waiting), (0, 0));
    let (succeeded, ..) = rush(&dependency, 5, 1).await;
    assert_eq!(succeeded, 5);
}
