//! An unruly broker without trouble is the broker that it wraps, to the letter; and with the trouble that keeps every
//! promise, it still keeps them.

use std::sync::Arc;

use landfall_core::Broker;
use landfall_testkit::MemoryBroker;
use landfall_testkit::conformance::broker::BrokerFixture;
use landfall_testkit::unruly::{Troubles, UnrulyBroker};

struct Calm(UnrulyBroker);

impl BrokerFixture for Calm {
    async fn create() -> Option<Self> {
        Some(Self(UnrulyBroker::new(MemoryBroker::new(), Troubles::none(1))))
    }

    fn broker(&self) -> Arc<dyn Broker> {
        Arc::new(self.0.clone())
    }

    async fn reopen(self) -> Self {
        self
    }
}

/// Delays and overtaking across keys are nothing that a port forbids.
struct Slow(UnrulyBroker);

impl BrokerFixture for Slow {
    async fn create() -> Option<Self> {
        let troubles = Troubles { delayed: 0.2, overtaken: 0.3, ..Troubles::none(2) };
        Some(Self(UnrulyBroker::new(MemoryBroker::new(), troubles)))
    }

    fn broker(&self) -> Arc<dyn Broker> {
        Arc::new(self.0.clone())
    }

    async fn reopen(self) -> Self {
        self
    }
}

mod calm {
    landfall_testkit::broker_conformance!(crate::Calm);
}

mod slow {
    landfall_testkit::broker_conformance!(crate::Slow);
}
