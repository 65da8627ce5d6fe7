//! The broker suite on a chaos broker: without faults, and with faults that break no promise of the ports.

use std::sync::Arc;

use landfall_core::Broker;
use landfall_testkit::MemoryBroker;
use landfall_testkit::chaos::{ChaosBroker, ChaosOptions};
use landfall_testkit::conformance::broker::BrokerFixture;

/// Without faults.
struct NoFaults(ChaosBroker);

impl BrokerFixture for NoFaults {
    async fn create() -> Option<Self> {
        Some(Self(ChaosBroker::new(MemoryBroker::new(), ChaosOptions::none(1))))
    }

    fn broker(&self) -> Arc<dyn Broker> {
        Arc::new(self.0.clone())
    }

    async fn reopen(self) -> Self {
        self
    }
}

/// With delays and overtaking across keys, which the ports allow.
struct Reordering(ChaosBroker);

impl BrokerFixture for Reordering {
    async fn create() -> Option<Self> {
        let options = ChaosOptions { delayed: 0.2, overtaken: 0.3, ..ChaosOptions::none(2) };
        Some(Self(ChaosBroker::new(MemoryBroker::new(), options)))
    }

    fn broker(&self) -> Arc<dyn Broker> {
        Arc::new(self.0.clone())
    }

    async fn reopen(self) -> Self {
        self
    }
}

mod no_faults {
    landfall_testkit::broker_conformance!(
        super::NoFaults,
        without durable: "no `durable`: the broker is in memory",
        deduplicates: "no `deduplicates`: the broker stores every message",
        payload_bytes: "no `payload_bytes`: the broker accepts every payload that Landfall does"
    );
}

mod reordering {
    landfall_testkit::broker_conformance!(
        super::Reordering,
        without durable: "no `durable`: the broker is in memory",
        deduplicates: "no `deduplicates`: the broker stores every message",
        payload_bytes: "no `payload_bytes`: the broker accepts every payload that Landfall does"
    );
}
