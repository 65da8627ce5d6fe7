//! The broker suite on the in-memory broker.

use std::sync::Arc;

use landfall_core::Broker;
use landfall_testkit::MemoryBroker;
use landfall_testkit::conformance::broker::BrokerFixture;

struct MemoryFixture(MemoryBroker);

impl BrokerFixture for MemoryFixture {
    async fn create() -> Option<Self> {
        Some(Self(MemoryBroker::new()))
    }

    fn broker(&self) -> Arc<dyn Broker> {
        Arc::new(self.0.clone())
    }

    async fn reopen(self) -> Self {
        unreachable!("the in-memory broker is not durable")
    }
}

landfall_testkit::broker_conformance!(
    MemoryFixture,
    without durable: "no `durable`: the broker is in memory",
    deduplicates: "no `deduplicates`: the broker stores every message",
    payload_bytes: "no `payload_bytes`: the broker accepts every payload that Landfall does"
);
