//! The conformance suite against a real RabbitMQ server.

use std::sync::Arc;
use std::time::Duration;

use landfall_core::Broker;
use landfall_rabbitmq::RabbitMq;
use landfall_testkit::conformance::broker::BrokerFixture;
use landfall_testkit::servers::{RabbitMqServer, SharedGuard};

use crate::support::{SHARED, SOON, connect_to, management, prefix, shared};

/// More than one, so that keys are distributed.
const PARTITIONS: u32 = 2;

struct Fixture {
    server: SharedGuard<RabbitMqServer>,
    prefix: String,
    broker: RabbitMq,
}

impl Fixture {
    async fn connect(server: SharedGuard<RabbitMqServer>, prefix: String) -> Self {
        let url = format!("{}?prefix={prefix}&partitions={PARTITIONS}&{}", server.url(), management(&server));
        let broker = connect_to(&url).await;
        Self { server, prefix, broker }
    }

    async fn has_persisted_all_queues(&self) -> bool {
        for topic in ["orders", "payments", "billing"] {
            for group in ["stock", "payment"] {
                for partition in 0..PARTITIONS {
                    let queue = format!("{}{topic}:{group}:{partition}", self.prefix);
                    if !self.server.remembers_queue(&queue).await {
                        return false;
                    }
                }
            }
        }
        true
    }
}

impl BrokerFixture for Fixture {
    async fn create() -> Option<Self> {
        Some(Self::connect(shared().await?, prefix()).await)
    }

    fn broker(&self) -> Arc<dyn Broker> {
        Arc::new(self.broker.clone())
    }

    async fn reopen(self) -> Self {
        let persisted = async {
            while !self.has_persisted_all_queues().await {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(SOON, persisted).await.expect("the server persists its list of queues");
        let Self { server, prefix, broker } = self;
        drop(broker);
        let server = SHARED.restart(server, async |server| server.restart().await.unwrap()).await;
        Self::connect(server, prefix).await
    }
}

landfall_testkit::broker_conformance!(
    Fixture,
    without replay: "no `replay`: a queue keeps no acknowledged message",
    deduplicates: "no `deduplicates`: RabbitMQ stores every message",
    payload_bytes: "no `payload_bytes`: the broker accepts every payload that Landfall does"
);
