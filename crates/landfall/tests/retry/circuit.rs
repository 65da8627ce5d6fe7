//! The breaker around calls.

use std::time::Duration;

use landfall::retry::{BreakerOptions, BreakerState, Dependency, Options};
use landfall::{ErrorCode, Failure, Verdict};

use crate::fixture::{Calls, SECOND, options};

fn fragile() -> Dependency {
    let breaker = BreakerOptions {
        minimum_calls: 4,
        failure_rate: 0.5,
        open_first: 10 * SECOND,
        open_cap: 60 * SECOND,
        successes_to_close: 1,
        probe_interval: Duration::ZERO,
        ..BreakerOptions::default()
    };
    Dependency::new("search", Options { breaker, ..options() }).unwrap()
}

async fn open(dependency: &Dependency) {
    for _ in 0..4 {
        dependency.call(|| async { Err::<(), _>(Failure::retry("down")) }).await.unwrap_err();
    }
    assert_eq!(dependency.state().breaker, BreakerState::Open);
}

#[tokio::test(start_paused = true)]
async fn open_breaker_makes_no_call_and_costs_no_attempt() {
    let (dependency, calls) = (fragile(), Calls::default());
    open(&dependency).await;
    let failure = dependency.retry(|_| calls.answer(Ok(()))).await.unwrap_err();
    assert_eq!((failure.code, failure.verdict, calls.count()), (ErrorCode::CIRCUIT_OPEN, Verdict::Wait, 0));
    let wait = failure.retry_after.unwrap();
    assert!(wait >= 5 * SECOND && wait <= 10 * SECOND, "{wait:?}");
}

#[tokio::test(start_paused = true)]
async fn rejected_calls_do_not_use_the_budget() {
    let dependency = fragile();
    open(&dependency).await;
    let left = dependency.state().budget_left;
    dependency.attempt(2, || async { Ok::<_, Failure>(()) }).await.unwrap_err();
    assert_eq!(dependency.state().budget_left, left);

    // Nor does a half-open breaker whose probe is in progress.
    tokio::time::advance(10 * SECOND).await;
    let left = dependency.state().budget_left;
    let probe = dependency.attempt(2, std::future::pending::<Result<(), Failure>>);
    let others = async {
        for _ in 0..5 {
            let failure = dependency.attempt(2, || async { Ok::<_, Failure>(()) }).await.unwrap_err();
            assert_eq!(failure.code, ErrorCode::CIRCUIT_OPEN);
        }
        dependency.state().budget_left
    };
    tokio::select! {
        biased;
        _ = probe => panic!("the probe never ends"),
        now = others => assert_eq!(now, left - 1, "only the probe took one"),
    }
}

#[tokio::test(start_paused = true)]
async fn half_open_breaker_allows_one_probe_at_a_time() {
    let (dependency, calls) = (fragile(), Calls::default());
    open(&dependency).await;
    tokio::time::advance(10 * SECOND).await;
    let slow = async {
        tokio::time::sleep(SECOND).await;
        calls.answer(Ok(())).await
    };
    let (probe, other) = tokio::join!(dependency.call(|| slow), dependency.call(|| calls.answer(Ok(()))));
    assert_eq!((probe, other.unwrap_err().code), (Ok(()), ErrorCode::CIRCUIT_OPEN));
    assert_eq!((calls.count(), dependency.state().breaker), (1, BreakerState::Closed));
}

#[tokio::test(start_paused = true)]
async fn fast_probes_of_a_half_open_breaker_are_limited_per_second() {
    let breaker = BreakerOptions {
        minimum_calls: 4,
        open_first: 10 * SECOND,
        successes_to_close: 100,
        probe_interval: SECOND / 5,
        ..BreakerOptions::default()
    };
    let dependency = Dependency::new("search", Options { breaker, ..options() }).unwrap();
    open(&dependency).await;
    tokio::time::advance(10 * SECOND).await;
    let calls = Calls::default();
    for _ in 0..1000 {
        let rejected = dependency.call(|| calls.answer(Ok(()))).await.err();
        assert!(rejected.is_none_or(|failure| failure.retry_after.unwrap() <= SECOND / 5));
        tokio::time::advance(SECOND / 500).await;
    }
    assert_eq!(calls.count(), 10, "five a second for two seconds");
}

#[tokio::test(start_paused = true)]
async fn fallback_answers_only_for_calls_that_were_not_made() {
    let (dependency, calls) = (fragile(), Calls::default());
    let park = || calls.answer(Err::<u32, _>(Failure::from_status(404, None).unwrap()));
    let failure = dependency.retry_or_else(|_| park(), async |_| Ok::<_, Failure>(0)).await.unwrap_err();
    assert_eq!((failure.verdict, calls.count()), (Verdict::Park, 1));
    open(&dependency).await;
    let fallback = async |failure: Failure| Ok::<_, Failure>(u32::from(failure.code == ErrorCode::CIRCUIT_OPEN));
    assert_eq!(dependency.retry_or_else(|_| calls.answer(Ok(7)), fallback).await, Ok(1));
    assert_eq!(calls.count(), 1, "no call was made");
}

#[tokio::test(start_paused = true)]
async fn cancelled_probe_frees_its_place() {
    let (dependency, calls) = (fragile(), Calls::default());
    open(&dependency).await;
    tokio::time::advance(10 * SECOND).await;
    let impatient = tokio::time::timeout(Duration::from_millis(10), dependency.call(|| calls.hang())).await;
    assert!(impatient.is_err());
    dependency.call(|| calls.answer(Ok(()))).await.unwrap();
    assert_eq!((calls.count(), dependency.state().breaker), (2, BreakerState::Closed));
}

#[tokio::test(start_paused = true)]
async fn client_errors_do_not_open_the_breaker() {
    let dependency = fragile();
    for _ in 0..20 {
        dependency.call(|| async { Err::<(), _>(Failure::from_status(404, None).unwrap()) }).await.unwrap_err();
    }
    assert_eq!(dependency.state().breaker, BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn old_failures_do_not_open_the_breaker() {
    let dependency = fragile();
    for _ in 0..3 {
        dependency.call(|| async { Err::<(), _>(Failure::retry("down")) }).await.unwrap_err();
    }
    tokio::time::advance(10 * SECOND).await;
    dependency.call(|| async { Err::<(), _>(Failure::retry("down")) }).await.unwrap_err();
    assert_eq!(dependency.state().breaker, BreakerState::Closed);
}
