//! Concurrent callers with the same key share one call.

use std::sync::Arc;
use std::time::Duration;

use landfall::Failure;
use landfall::retry::Collapse;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::fixture::{Calls, SECOND};

type Shared = Arc<Collapse<&'static str, Result<u32, Failure>>>;

/// Returns the number of calls made so far, after a second.
async fn call_counted(collapse: Shared, key: &'static str, calls: Calls) -> Result<u32, Failure> {
    let call = || async {
        calls.answer(Ok(())).await?;
        tokio::time::sleep(SECOND).await;
        Ok(calls.count())
    };
    collapse.run(key, call).await
}

#[tokio::test(start_paused = true)]
async fn concurrent_callers_with_one_key_share_one_call() {
    let (collapse, calls) = (Shared::default(), Calls::default());
    let callers: JoinSet<_> = (0..100).map(|_| call_counted(collapse.clone(), "pay/1", calls.clone())).collect();
    assert_eq!(callers.join_all().await, vec![Ok(1); 100]);
    assert_eq!(collapse.under_way(), 0);
}

#[tokio::test(start_paused = true)]
async fn other_keys_and_later_callers_make_their_own_calls() {
    let (collapse, calls) = (Shared::default(), Calls::default());
    let callers: JoinSet<_> =
        ["a", "b", "a"].map(|key| call_counted(collapse.clone(), key, calls.clone())).into_iter().collect();
    callers.join_all().await;
    assert_eq!(calls.count(), 2);
    assert_eq!(call_counted(collapse.clone(), "a", calls).await, Ok(3));
}

#[tokio::test(start_paused = true)]
async fn failures_are_shared() {
    let (collapse, calls) = (Shared::default(), Calls::default());
    let mut callers = JoinSet::new();
    for _ in 0..3 {
        let (collapse, calls) = (collapse.clone(), calls.clone());
        callers.spawn(async move {
            let call = || async {
                tokio::time::sleep(SECOND).await;
                calls.answer(Err(Failure::retry("down"))).await
            };
            collapse.run("a", call).await
        });
    }
    assert_eq!(callers.join_all().await, vec![Err(Failure::retry("down")); 3]);
    assert_eq!(calls.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn cancelled_leader_hands_the_call_to_a_follower() {
    let (collapse, calls) = (Shared::default(), Calls::default());
    let leader = {
        let (collapse, calls) = (collapse.clone(), calls.clone());
        tokio::spawn(async move {
            let call = || async { calls.hang().await.map(|()| 0) };
            collapse.run("a", call).await
        })
    };
    while calls.count() == 0 {
        tokio::task::yield_now().await;
    }
    let followers: JoinSet<_> = (0..3).map(|_| call_counted(collapse.clone(), "a", calls.clone())).collect();
    tokio::task::yield_now().await;
    leader.abort();
    assert!(leader.await.unwrap_err().is_cancelled());
    assert_eq!(followers.join_all().await, vec![Ok(2); 3]);
    assert_eq!(collapse.under_way(), 0);
}

#[tokio::test(start_paused = true)]
async fn panicking_leader_hands_the_call_to_a_follower() {
    let (collapse, calls) = (Shared::default(), Calls::default());
    let (go, wait) = oneshot::channel::<()>();
    let leader = {
        let collapse = collapse.clone();
        tokio::spawn(async move {
            let call = || async {
                let _ = wait.await;
                panic!("planted");
            };
            collapse.run("a", call).await
        })
    };
    while collapse.under_way() == 0 {
        tokio::task::yield_now().await;
    }
    let follower = tokio::spawn(call_counted(collapse.clone(), "a", calls.clone()));
    tokio::task::yield_now().await;
    go.send(()).unwrap();
    assert!(leader.await.unwrap_err().is_panic());
    assert_eq!(follower.await.unwrap(), Ok(1));
    assert_eq!(collapse.under_way(), 0);
}

#[tokio::test(start_paused = true)]
async fn abandoned_call_is_removed() {
    let (collapse, calls) = (Shared::default(), Calls::default());
    let alone =
        tokio::time::timeout(Duration::from_millis(10), call_counted(collapse.clone(), "a", calls.clone())).await;
    assert!(alone.is_err());
    assert_eq!(collapse.under_way(), 0);
    assert_eq!(call_counted(collapse, "a", calls).await, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn debounced_repeats_get_the_first_answer_until_the_window_ends() {
    let collapse: Shared = Arc::new(Collapse::debounce(10 * SECOND));
    let calls = Calls::default();
    let repeat = || call_counted(collapse.clone(), "pay/1", calls.clone());
    assert_eq!(repeat().await, Ok(1));
    for _ in 0..9 {
        tokio::time::advance(SECOND).await;
        assert_eq!(repeat().await, Ok(1), "a repeat does not extend the window");
    }
    assert_eq!((call_counted(collapse.clone(), "pay/2", calls.clone()).await, collapse.under_way()), (Ok(2), 0));
    // The second key took a second, so the window of the first has ended.
    assert_eq!(repeat().await, Ok(3));
    assert_eq!(call_counted(collapse.clone(), "pay/2", calls.clone()).await, Ok(2), "each key has its own window");
}

#[tokio::test(start_paused = true)]
async fn cancelled_debounced_call_leaves_no_answer() {
    let collapse: Shared = Arc::new(Collapse::debounce(10 * SECOND));
    let calls = Calls::default();
    let hanging = collapse.run("a", || async { calls.hang().await.map(|()| 0) });
    assert!(tokio::time::timeout(SECOND, hanging).await.is_err());
    assert_eq!(collapse.under_way(), 0);
    assert_eq!(call_counted(collapse.clone(), "a", calls.clone()).await, Ok(2));
}
