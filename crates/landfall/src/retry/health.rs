//! The breaker and the budget of one dependency, behind one lock that is never held across an await.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use landfall_core::{Breaker, BreakerState, Budget, Rejected, Ticket};

use super::Options;
use super::counters::Counters;

/// What a dependency is like at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    pub breaker: BreakerState,
    /// Calls on their way.
    pub running: usize,
    /// Calls that wait for one of those to end.
    pub waiting: usize,
    /// Retries that would be allowed now.
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
    shown: BreakerState,
}

/// Permission for one call. One that is dropped, since its caller was cancelled or panicked, frees its place.
pub(super) struct Pass<'a> {
    health: &'a Health,
    ticket: Option<Ticket>,
}

impl Health {
    pub(super) fn new(name: &str, options: &Options) -> Self {
        let (breaker, budget) = (Breaker::new(options.breaker), Budget::new(options.budget));
        let inner = Inner { breaker, budget, shown: BreakerState::Closed };
        Self { name: name.to_owned(), inner: Mutex::new(inner), counters: Counters::new(name) }
    }

    /// An error if a call would certainly be turned away; takes no place.
    pub(super) fn look(&self) -> Result<(), Rejected> {
        let mut inner = self.lock();
        if inner.breaker.state(now()) != BreakerState::Open {
            return Ok(());
        }
        inner.breaker.admit(now()).map(|ticket| inner.breaker.abandoned(ticket))
    }

    pub(super) fn admit(&self) -> Result<Pass<'_>, Rejected> {
        let mut inner = self.lock();
        let ticket = inner.breaker.admit(now());
        self.show(&mut inner);
        Ok(Pass { health: self, ticket: Some(ticket?) })
    }

    /// Takes a retry out of the budget, if one is left.
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

    /// Tells the metrics, and the log if it changed.
    fn show(&self, inner: &mut Inner) {
        let state = inner.breaker.state(now());
        if state == inner.shown {
            return;
        }
        let before = std::mem::replace(&mut inner.shown, state);
        self.counters.show(state);
        match state {
            BreakerState::Open => tracing::warn!(dependency = self.name, ?before, "the breaker opened"),
            _ => tracing::info!(dependency = self.name, ?before, ?state, "the breaker changed"),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pass<'_> {
    pub(super) fn succeeded(self) {
        self.report(|inner, ticket| {
            inner.breaker.succeeded(ticket, now());
            inner.budget.succeeded(now());
        });
    }

    /// The dependency answered; that it did not like the question is not its fault.
    pub(super) fn answered(self) {
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
        self.health.show(&mut inner);
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.health.lock().breaker.abandoned(ticket);
        }
    }
}

/// The runtime's time, so that a test can turn the clock.
pub(super) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
