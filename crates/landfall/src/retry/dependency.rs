use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use landfall_core::{ErrorCode, Failed, Failure, Rejected, Verdict};

use super::bulkhead::Bulkhead;
use super::health::{Health, now};
use super::{Options, State};

/// A remote service that calls may fail on. Clones share one breaker, budget and bulkhead.
///
/// ```
/// use landfall::Failure;
/// use landfall::retry::{Dependency, Options, Repeat};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Failure> {
/// // The receiver deduplicates, so a call whose outcome is unknown may be repeated.
/// let gateway = Dependency::new("gateway", Options { repeat: Repeat::Safe, ..Options::default() })?;
/// let attempts = gateway
///     .retry(async |attempt| {
///         if attempt < 2 { Err(Failure::retry("connection reset")) } else { Ok(attempt) }
///     })
///     .await?;
/// assert_eq!(attempts, 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Dependency(Arc<Inner>);

struct Inner {
    name: String,
    options: Options,
    bulkhead: Bulkhead,
    health: Health,
}

/// What an attempt costs the retry budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Price {
    /// Nothing: it is a first attempt, or was paid for before the pause.
    Free,
    Retry,
}

impl Dependency {
    /// `name` is the value of the metric label `dependency`, so keep the number of names small. Fails with kind
    /// `Invalid` if an option is out of range.
    pub fn new(name: impl Into<String>, options: Options) -> landfall_core::Result<Self> {
        options.check()?;
        let name = name.into();
        let bulkhead = Bulkhead::new(options.concurrency, options.waiting, options.longest_wait);
        let health = Health::new(&name, &options);
        Ok(Self(Arc::new(Inner { name, options, bulkhead, health })))
    }

    pub fn name(&self) -> &str {
        &self.0.name
    }

    pub fn state(&self) -> State {
        State {
            breaker: self.0.health.breaker(),
            running: self.0.bulkhead.running(),
            waiting: self.0.bulkhead.waiting(),
            budget_left: self.0.health.budget_left(),
        }
    }

    /// Makes one attempt.
    ///
    /// Fails with [`Verdict::Wait`] if the call was not made because the dependency is unavailable or busy. Otherwise
    /// the failure is as `call` classified it; an error that is not a [`Failure`] is retried.
    pub async fn call<T, E, F>(&self, call: impl FnOnce() -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, E>>,
        E: Into<Failure>,
    {
        self.attempt_once(call, self.0.options.call_timeout, Price::Free).await
    }

    /// Makes one attempt for a caller that retries by other means, such as a consumer. `attempt` counts from 1; every
    /// attempt but the first is a retry. If the budget does not allow it, the call is not made.
    pub async fn attempt<T, E, F>(&self, attempt: u32, call: impl FnOnce() -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, E>>,
        E: Into<Failure>,
    {
        let price = if attempt > 1 { Price::Retry } else { Price::Free };
        let result = self.attempt_once(call, self.0.options.call_timeout, price).await;
        if result.as_ref().is_err_and(|failure| failure.retry_after.is_some() && failure.verdict == Verdict::Retry) {
            self.0.health.counters.retry_after_honored.increment(1);
        }
        result
    }

    /// Retries until the call succeeds or fails permanently, or until the policy, the deadline, the breaker or the
    /// budget allows no more attempts. Returns the last failure. `call` receives the number of the attempt, from 1.
    pub async fn retry<T, E, F>(&self, mut call: impl FnMut(u32) -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, E>>,
        E: Into<Failure>,
    {
        let Options { policy, call_timeout, .. } = &self.0.options;
        let started = now();
        let (mut attempts, mut previous) = (0, None);
        loop {
            attempts += 1;
            let left = policy.deadline.map_or(Duration::MAX, |deadline| deadline.saturating_sub(now() - started));
            let failure = match self.attempt_once(|| call(attempts), left.min(*call_timeout), Price::Free).await {
                Ok(value) => return Ok(value),
                Err(failure) if failure.verdict == Verdict::Retry => failure,
                Err(failure) => return Err(failure),
            };
            let failed = Failed { attempts, elapsed: now() - started, previous, retry_after: failure.retry_after };
            let Some(delay) = policy.delay_after(failed, rand::random()) else { return Err(failure) };
            if !self.0.health.take_retry() {
                return Err(self.budget_exhausted(Some(&failure)));
            }
            if failure.retry_after.is_some() {
                self.0.health.counters.retry_after_honored.increment(1);
            }
            tracing::debug!(dependency = self.0.name, %failure, attempts, ?delay, "call failed, retrying");
            tokio::time::sleep(delay).await;
            previous = Some(delay);
        }
    }

    /// Like [`retry`](Self::retry), with a fallback for calls that were not made: the breaker is open, the bulkhead is
    /// full or the budget is exhausted. `fallback` receives that failure, and returns a cached or default answer.
    ///
    /// Failures of calls that were made are returned unchanged.
    pub async fn retry_or_else<T, E, F, E2, F2>(
        &self,
        call: impl FnMut(u32) -> F,
        fallback: impl FnOnce(Failure) -> F2,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, E>>,
        E: Into<Failure>,
        F2: Future<Output = Result<T, E2>>,
        E2: Into<Failure>,
    {
        const NOT_MADE: [ErrorCode; 3] =
            [ErrorCode::CIRCUIT_OPEN, ErrorCode::BULKHEAD_FULL, ErrorCode::BUDGET_EXHAUSTED];
        match self.retry(call).await {
            Err(failure) if NOT_MADE.contains(&failure.code) => fallback(failure).await.map_err(Into::into),
            result => result,
        }
    }

    async fn attempt_once<T, E, F>(
        &self,
        call: impl FnOnce() -> F,
        timeout: Duration,
        price: Price,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, E>>,
        E: Into<Failure>,
    {
        // An open breaker rejects at once, even while the calls that opened it still fill the bulkhead.
        self.0.health.check().map_err(|rejected| self.circuit_open(rejected))?;
        let Some(_permit) = self.0.bulkhead.enter().await else {
            let error = format_args!("too many calls to {} are in progress or waiting", self.0.name);
            return Err(Failure::wait(ErrorCode::BULKHEAD_FULL, error));
        };
        let permission = self.0.health.admit().map_err(|rejected| self.circuit_open(rejected))?;
        // Last, so that a call that is not made costs nothing.
        if price == Price::Retry && !self.0.health.take_retry() {
            return Err(self.budget_exhausted(None));
        }
        let failure = match tokio::time::timeout(timeout, call()).await {
            Ok(Ok(value)) => {
                permission.succeeded();
                return Ok(value);
            }
            Ok(Err(error)) => error.into(),
            Err(_) => {
                let error = format_args!("{} did not answer within {timeout:?}", self.0.name);
                Failure::new(ErrorCode::TIMEOUT, error, Verdict::Retry)
            }
        };
        match failure.verdict {
            Verdict::Retry => permission.failed(),
            Verdict::Park => permission.rejected_by_dependency(),
            // The call was not made further down: this says nothing about the dependency.
            Verdict::Wait => drop(permission),
        }
        Err(failure.repeated_if(self.0.options.repeat))
    }

    fn circuit_open(&self, rejected: Rejected) -> Failure {
        let error = format_args!("the circuit breaker of {} is open", self.0.name);
        let failure = Failure::wait(ErrorCode::CIRCUIT_OPEN, error);
        Failure { retry_after: rejected.retry_after, ..failure }
    }

    fn budget_exhausted(&self, last: Option<&Failure>) -> Failure {
        let last = last.map(|failure| format!("; the last attempt failed with {failure}")).unwrap_or_default();
        let error = format_args!("the retry budget of {} is exhausted{last}", self.0.name);
        Failure::wait(ErrorCode::BUDGET_EXHAUSTED, error)
    }
}

impl fmt::Debug for Dependency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dependency").field("name", &self.0.name).field("state", &self.state()).finish_non_exhaustive()
    }
}
