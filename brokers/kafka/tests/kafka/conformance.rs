//! The conformance suite against a real Kafka node that all cases share. Each case has its own prefix.

use std::sync::Arc;

use landfall_core::Broker;
use landfall_kafka::Kafka;
use landfall_testkit::conformance::broker::BrokerFixture;
use landfall_testkit::servers::SharedGuard;

use crate::support::{SHARED, Shared, fresh_prefix, kafka, shared};

struct Fixture {
    broker: Arc<Kafka>,
    url: String,
    server: SharedGuard<Shared>,
}

impl BrokerFixture for Fixture {
    async fn create() -> Option<Self> {
        let server = shared().await?;
        let url = format!("{}?partitions=2&prefix={}", server.url().await, fresh_prefix());
        Some(Self { broker: Arc::new(kafka(&url).await), url, server })
    }

    fn broker(&self) -> Arc<dyn Broker> {
        self.broker.clone()
    }

    async fn reopen(self) -> Self {
        let Self { broker, url, server } = self;
        drop(broker);
        let server = SHARED.restart(server, async |server| server.restart().await.unwrap()).await;
        Self { broker: Arc::new(kafka(&url).await), url, server }
    }
}

landfall_testkit::broker_conformance!(
    Fixture,
    without deduplicates: "no `deduplicates`: Kafka deduplicates retried requests, not messages"
);
