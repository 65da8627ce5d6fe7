//! The number of attempts, the pauses between them, and failures that are not retried.

use std::time::Duration;

use landfall::retry::{BreakerOptions, BudgetOptions, Dependency, Options, RetryPolicy};
use landfall::{ErrorCode, ErrorKind, Failure, Verdict};
use tokio::time::Instant;

use crate::fixture::{Calls, SECOND, options};

fn unavailable() -> Failure {
    Failure::from_status(503, None).unwrap()
}

#[tokio::test(start_paused = true)]
async fn call_that_fails_twice_succeeds_on_the_third_attempt() {
    let (dependency, calls) = (Dependency::new("search", options()).unwrap(), Calls::default());
    let done =
        dependency.retry(|attempt| calls.answer(if attempt < 3 { Err(unavailable()) } else { Ok(attempt) })).await;
    assert_eq!((done, calls.count()), (Ok(3), 3));
}

#[tokio::test(start_paused = true)]
async fn last_failure_is_returned_after_all_attempts() {
    let (dependency, calls) = (Dependency::new("search", options()).unwrap(), Calls::default());
    let failure = dependency.retry(|_| calls.answer::<()>(Err(unavailable()))).await.unwrap_err();
    assert_eq!((failure.code, calls.count()), (ErrorCode::DEPENDENCY, 5));
}

#[tokio::test(start_paused = true)]
async fn permanent_failure_is_not_retried() {
    let (dependency, calls) = (Dependency::new("search", options()).unwrap(), Calls::default());
    let wrong = || Err(Failure::from_status(422, None).unwrap());
    let failure = dependency.retry(|_| calls.answer::<()>(wrong())).await.unwrap_err();
    assert_eq!((failure.verdict, calls.count()), (Verdict::Park, 1));
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_honoured() {
    let (dependency, calls, started) =
        (Dependency::new("search", options()).unwrap(), Calls::default(), Instant::now());
    let busy = || Err(Failure::from_status(429, Some(30 * SECOND)).unwrap());
    dependency.retry(|attempt| calls.answer(if attempt == 1 { busy() } else { Ok(()) })).await.unwrap();
    assert_eq!((started.elapsed(), calls.count()), (30 * SECOND, 2));
}

#[tokio::test(start_paused = true)]
async fn retry_after_past_the_deadline_fails_at_once() {
    let policy = RetryPolicy { deadline: Some(20 * SECOND), ..options().policy };
    let (dependency, calls) = (Dependency::new("search", Options { policy, ..options() }).unwrap(), Calls::default());
    let started = Instant::now();
    let busy = || Err(Failure::from_status(429, Some(30 * SECOND)).unwrap());
    let failure = dependency.retry(|_| calls.answer::<()>(busy())).await.unwrap_err();
    assert_eq!((failure.retry_after, calls.count(), started.elapsed()), (Some(30 * SECOND), 1, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn hanging_call_is_retried_until_the_deadline() {
    let policy = RetryPolicy { deadline: Some(25 * SECOND), ..options().policy };
    let (dependency, calls) = (Dependency::new("search", Options { policy, ..options() }).unwrap(), Calls::default());
    let started = Instant::now();
    let failure = dependency.retry(|_| calls.hang()).await.unwrap_err();
    assert_eq!(failure.code, ErrorCode::TIMEOUT);
    assert!((2..=3).contains(&calls.count()), "{} attempts of ten seconds in 25", calls.count());
    assert!(started.elapsed() <= 25 * SECOND, "the deadline cuts the last attempt short");
}

#[tokio::test(start_paused = true)]
async fn unsafe_call_is_not_repeated_after_a_timeout() {
    let options = Options { repeat: Options::default().repeat, ..options() };
    let (dependency, calls) = (Dependency::new("payments", options).unwrap(), Calls::default());
    let failure = dependency.retry(|_| calls.hang()).await.unwrap_err();
    assert_eq!((failure.code, failure.verdict, calls.count()), (ErrorCode::TIMEOUT, Verdict::Park, 1));
    // A rejected call did not happen, so it may be repeated.
    let busy = || Err(Failure::from_status(429, None).unwrap());
    dependency.retry(|attempt| calls.answer(if attempt == 1 { busy() } else { Ok(()) })).await.unwrap();
    assert_eq!(calls.count(), 3);
}

#[tokio::test(start_paused = true)]
async fn exhausted_budget_stops_retries_and_costs_no_attempt() {
    let budget = BudgetOptions { ratio: 0.5, floor: 1, window: 100 * SECOND, ..Default::default() };
    let (dependency, calls) = (Dependency::new("search", Options { budget, ..options() }).unwrap(), Calls::default());
    let failure = dependency.retry(|_| calls.answer::<()>(Err(unavailable()))).await.unwrap_err();
    assert_eq!((failure.code, failure.verdict), (ErrorCode::BUDGET_EXHAUSTED, Verdict::Wait));
    assert!(failure.error.contains("HTTP 503"), "{}", failure.error);
    assert_eq!(calls.count(), 2, "the first attempt and the one that the floor allows");

    // A consumer's second attempt is a retry too: it is made only after new successes.
    let refused = dependency.attempt(2, || calls.answer(Ok(()))).await.unwrap_err();
    assert_eq!((refused.code, refused.verdict, calls.count()), (ErrorCode::BUDGET_EXHAUSTED, Verdict::Wait, 2));
    for _ in 0..2 {
        dependency.attempt(1, || calls.answer(Ok(()))).await.unwrap();
    }
    dependency.attempt(2, || calls.answer(Ok(()))).await.unwrap();
    assert_eq!(dependency.state().budget_left, 0);
}

#[tokio::test(start_paused = true)]
async fn any_error_is_retried_and_keeps_its_text() {
    let dependency = Dependency::new("search", options()).unwrap();
    let failure = dependency.call(|| async { "x".parse::<u32>() }).await.unwrap_err();
    assert_eq!((failure.verdict, failure.error.as_str()), (Verdict::Retry, "invalid digit found in string"));
}

#[test]
fn options_out_of_range_are_refused_by_name() {
    let breaker = |change: fn(&mut BreakerOptions)| {
        let mut options = options();
        change(&mut options.breaker);
        options
    };
    let budget = |ratio, window| Options { budget: BudgetOptions { ratio, window, ..Default::default() }, ..options() };
    for (options, option) in [
        (Options { concurrency: 0, ..options() }, "concurrency is 0"),
        (Options { concurrency: usize::MAX, ..options() }, "concurrency is 1844"),
        (Options { call_timeout: Duration::ZERO, ..options() }, "call_timeout is zero"),
        (breaker(|breaker| breaker.minimum_calls = 0), "breaker.minimum_calls is 0"),
        (breaker(|breaker| breaker.probes = 0), "breaker.probes is 0"),
        (breaker(|breaker| breaker.failure_rate = f64::NAN), "breaker.failure_rate is NaN"),
        (breaker(|breaker| breaker.window = Duration::ZERO), "breaker.window is zero"),
        (budget(-0.1, SECOND), "budget.ratio is -0.1"),
        (budget(0.1, Duration::ZERO), "budget.window is zero"),
    ] {
        let error = Dependency::new("search", options).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(option), "{error}");
    }
}
