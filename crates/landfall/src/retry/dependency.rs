use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use landfall_core::{ErrorCode, Failed, Failure, Rejected, Verdict};

use super::bulkhead::Bulkhead;
use super::health::{Health, now};
use super::{Options, State};

/// Something that is called and may fail. Clones are the same dependency: what one of them learns, all of them know.
#[derive(Clone)]
pub struct Dependency(Arc<Inner>);

struct Inner {
    name: String,
    options: Options,
    bulkhead: Bulkhead,
    health: Health,
}

/// What a try takes out of the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Price {
    /// Nothing: it is a first try, or was paid for before the wait.
    Free,
    Retry,
}

impl Dependency {
    /// `name` is the label `dependency` of its metrics, so there should not be thousands of them.
    pub fn new(name: impl Into<String>, options: Options) -> Self {
        let name = name.into();
        let bulkhead = Bulkhead::new(options.concurrency, options.waiting, options.longest_wait);
        let health = Health::new(&name, &options);
        Self(Arc::new(Inner { name, options, bulkhead, health }))
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

    /// One try. `Err` says what to do next: [`Verdict::Wait`] if the call was not made, since the dependency is out of
    /// order or busy; else as `call` itself classified its failure, where an error that is no [`Failure`] is retried.
    pub async fn call<T, E, F>(&self, call: impl FnOnce() -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, E>>,
        E: Into<Failure>,
    {
        self.one_try(call, self.0.options.call_timeout, Price::Free).await
    }

    /// One try for a caller who repeats it by other means, such as a consumer: `attempt` is counted from 1, and each but
    /// the first is a retry, which the budget must allow. If it does not, the call is not made.
    pub async fn attempt<T, E, F>(&self, attempt: u32, call: impl FnOnce() -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, E>>,
        E: Into<Failure>,
    {
        let price = if attempt > 1 { Price::Retry } else { Price::Free };
        let result = self.one_try(call, self.0.options.call_timeout, price).await;
        if result.as_ref().is_err_and(|failure| failure.retry_after.is_some() && failure.verdict == Verdict::Retry) {
            self.0.health.counters.retry_after_honored.increment(1);
        }
        result
    }

    /// Tries until it succeeds, fails for good, or the policy, the deadline, the breaker or the budget says that it is
    /// enough; the last failure is returned. `call` is told which try it is, counted from 1.
    pub async fn retry<T, E, F>(&self, mut call: impl FnMut(u32) -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, E>>,
        E: Into<Failure>,
    {
        let Options { policy, call_timeout, .. } = &self.0.options;
        let begun = now();
        let (mut attempts, mut previous) = (0, None);
        loop {
            attempts += 1;
            let left = policy.deadline.map_or(Duration::MAX, |deadline| deadline.saturating_sub(now() - begun));
            let failure = match self.one_try(|| call(attempts), left.min(*call_timeout), Price::Free).await {
                Ok(done) => return Ok(done),
                Err(failure) if failure.verdict == Verdict::Retry => failure,
                Err(failure) => return Err(failure),
            };
            let failed = Failed { attempts, elapsed: now() - begun, previous, retry_after: failure.retry_after };
            let Some(delay) = policy.delay_after(failed, rand::random()) else { return Err(failure) };
            if !self.0.health.take_retry() {
                return Err(self.budget_exhausted(Some(&failure)));
            }
            if failure.retry_after.is_some() {
                self.0.health.counters.retry_after_honored.increment(1);
            }
            tracing::debug!(dependency = self.0.name, %failure, attempts, ?delay, "trying again");
            tokio::time::sleep(delay).await;
            previous = Some(delay);
        }
    }

    async fn one_try<T, E, F>(&self, call: impl FnOnce() -> F, timeout: Duration, price: Price) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, E>>,
        E: Into<Failure>,
    {
        // An open breaker answers at once, even while the calls that opened it still fill the bulkhead.
        self.0.health.look().map_err(|rejected| self.circuit_open(rejected))?;
        let Some(_place) = self.0.bulkhead.enter().await else {
            let error = format_args!("too many calls to {} are on their way or waiting", self.0.name);
            return Err(Failure::wait(ErrorCode::BULKHEAD_FULL, error));
        };
        let pass = self.0.health.admit().map_err(|rejected| self.circuit_open(rejected))?;
        // Last, so that nobody pays for a call that is not made.
        if price == Price::Retry && !self.0.health.take_retry() {
            return Err(self.budget_exhausted(None));
        }
        let failure = match tokio::time::timeout(timeout, call()).await {
            Ok(Ok(done)) => {
                pass.succeeded();
                return Ok(done);
            }
            Ok(Err(error)) => error.into(),
            Err(_) => {
                let error = format_args!("{} did not answer within {timeout:?}", self.0.name);
                Failure::new(ErrorCode::TIMEOUT, error, Verdict::Retry)
            }
        };
        match failure.verdict {
            Verdict::Retry => pass.failed(),
            Verdict::Park => pass.answered(),
            // The call itself was turned away further on: no news of this dependency.
            Verdict::Wait => drop(pass),
        }
        Err(failure.repeated_if(self.0.options.repeat))
    }

    fn circuit_open(&self, rejected: Rejected) -> Failure {
        let error = format_args!("{} failed too often and is left alone for a while", self.0.name);
        let failure = Failure::wait(ErrorCode::CIRCUIT_OPEN, error);
        Failure { retry_after: rejected.retry_after, ..failure }
    }

    fn budget_exhausted(&self, last: Option<&Failure>) -> Failure {
        let last = last.map(|failure| format!("; the last try failed with {failure}")).unwrap_or_default();
        let error = format_args!("more retries of {} would be too many beside its successes{last}", self.0.name);
        Failure::wait(ErrorCode::BUDGET_EXHAUSTED, error)
    }
}

impl fmt::Debug for Dependency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dependency").field("name", &self.0.name).field("state", &self.state()).finish_non_exhaustive()
    }
}
