//! The breaker and the budget of one dependency, behind one lock that is never held across an await.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use landfall_core::{Breaker, BreakerState, Budget, Rejected, Ticket};

use super::Options;
use super::counters::Counters;

/// A snapshot of a dependency's breaker, bulkhead and budget.
///
/// ```
/// use landfall::retry::{BreakerState, Dependency, Options};
///
/// let state = Dependency::new("gateway", Options::default())?.state();
/// assert_eq!((state.breaker, state.running, state.waiting), (BreakerState::Closed, 0, 0));
/// # Ok::<_, landfall::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    pub breaker: BreakerState,
    /// Calls in progress.
    pub running: usize,
    /// Callers waiting in the bulkhead.
    pub waiting: usize,
    /// Retries that the budget would allow now.
    pub budget_left: u64,
}

pub(super) struct Health {
    name: String,
    inner: Mutex<Inner>,
    pub(super) counters: Counters,
}

struct Inner {
    breaker: Breaker,
    budget: Budget,
    reported: BreakerState,
}

/// The breaker's permission for one call. Dropped without a result, as when the caller is cancelled or panics, it frees
/// its place.
pub(super) struct CallPermission<'a> {
    health: &'a Health,
    ticket: Option<Ticket>,
}

impl Health {
    pub(super) fn new(name: &str, options: &Options) -> Self {
        let (breaker, budget) = (Breaker::new(options.breaker), Budget::new(options.budget));
        let inner = Inner { breaker, budget, reported: BreakerState::Closed };
        Self { name: name.to_owned(), inner: Mutex::new(inner), counters: Counters::new(name) }
    }

    /// Fails if the breaker would reject a call now. Takes no place in a half-open breaker.
    pub(super) fn check(&self) -> Result<(), Rejected> {
        let mut inner = self.lock();
        if inner.breaker.state(now()) != BreakerState::Open {
            return Ok(());
        }
        inner.breaker.admit(now()).map(|ticket| inner.breaker.abandoned(ticket))
    }

    pub(super) fn admit(&self) -> Result<CallPermission<'_>, Rejected> {
        let mut inner = self.lock();
        let ticket = inner.breaker.admit(now());
        self.report_state(&mut inner);
        Ok(CallPermission { health: self, ticket: Some(ticket?) })
    }

    /// Takes one retry from the budget; returns whether one was left.
    pub(super) fn take_retry(&self) -> bool {
        let allowed = self.lock().budget.take(now());
        let counter = if allowed { &self.counters.retry_allowed } else { &self.counters.retry_exhausted };
        counter.increment(1);
        allowed
    }

    pub(super) fn breaker(&self) -> BreakerState {
        self.lock().breaker.state(now())
    }

    pub(super) fn budget_left(&self) -> u64 {
        self.lock().budget.left(now())
    }

    /// Sets the metric and logs if the state of the breaker has changed.
    fn report_state(&self, inner: &mut Inner) {
        let state = inner.breaker.state(now());
        if state == inner.reported {
            return;
        }
        let before = std::mem::replace(&mut inner.reported, state);
        self.counters.set_breaker(state);
        match state {
            BreakerState::Open => tracing::warn!(dependency = self.name, ?before, "circuit breaker opened"),
            _ => tracing::info!(dependency = self.name, ?before, ?state, "circuit breaker changed"),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CallPermission<'_> {
    pub(super) fn succeeded(self) {
        self.report(|inner, ticket| {
            inner.breaker.succeeded(ticket, now());
            inner.budget.succeeded(now());
        });
    }

    /// The dependency is healthy and rejected this call: a success for the breaker.
    pub(super) fn rejected_by_dependency(self) {
        self.report(|inner, ticket| inner.breaker.succeeded(ticket, now()));
    }

    pub(super) fn failed(self) {
        self.report(|inner, ticket| inner.breaker.failed(ticket, now(), rand::random()));
    }

    fn report(mut self, report: impl FnOnce(&mut Inner, Ticket)) {
        let mut inner = self.health.lock();
        if let Some(ticket) = self.ticket.take() {
            report(&mut inner, ticket);
        }
        self.health.report_state(&mut inner);
    }
}

impl Drop for CallPermission<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.health.lock().breaker.abandoned(ticket);
        }
    }
}

/// The runtime's clock, which tests can advance.
pub(super) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
