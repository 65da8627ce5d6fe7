//! The metrics of a dependency. Their names are part of Landfall's contract.

use landfall_core::BreakerState;
use metrics::{Counter, Gauge};

pub(super) struct Counters {
    pub(super) retry_allowed: Counter,
    pub(super) retry_exhausted: Counter,
    pub(super) retry_after_honored: Counter,
    breaker_state: Gauge,
}

impl Counters {
    pub(super) fn new(dependency: &str) -> Self {
        let labels = [("dependency", dependency.to_owned())];
        let counters = Self {
            retry_allowed: metrics::counter!("landfall_retry_allowed_total", &labels),
            retry_exhausted: metrics::counter!("landfall_retry_exhausted_total", &labels),
            retry_after_honored: metrics::counter!("landfall_retry_after_honored_total", &labels),
            breaker_state: metrics::gauge!("landfall_breaker_state", &labels),
        };
        // Present from the first scrape, so that a rate over them starts at zero.
        for counter in [&counters.retry_allowed, &counters.retry_exhausted, &counters.retry_after_honored] {
            counter.increment(0);
        }
        counters.set_breaker(BreakerState::Closed);
        counters
    }

    pub(super) fn set_breaker(&self, state: BreakerState) {
        self.breaker_state.set(match state {
            BreakerState::Closed => 0.0,
            BreakerState::HalfOpen => 1.0,
            BreakerState::Open => 2.0,
        });
    }
}
