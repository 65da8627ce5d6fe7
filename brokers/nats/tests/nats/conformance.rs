//! The conformance suite against a real server that all cases share, each with its own prefix. It runs twice: with
//! atomic batches, and key by key as on servers without them.

use std::sync::Arc;

use landfall_core::Broker;
use landfall_nats::Nats;
use landfall_testkit::conformance::broker::BrokerFixture;
use landfall_testkit::current_test;
use landfall_testkit::servers::{NatsServer, SharedGuard};

use crate::support::{SHARED, connect, shared};

struct Fixture<const ATOMIC: bool> {
    server: SharedGuard<NatsServer>,
    prefix: String,
    broker: Nats,
}

impl<const ATOMIC: bool> Fixture<ATOMIC> {
    async fn open(server: SharedGuard<NatsServer>, prefix: String) -> Self {
        let url = format!("{}?prefix={prefix}&partitions=3&session_timeout=2s&atomic={ATOMIC}", server.url());
        Self { server, prefix, broker: connect(&url).await }
    }
}

impl<const ATOMIC: bool> BrokerFixture for Fixture<ATOMIC> {
    async fn create() -> Option<Self> {
        let test = current_test();
        let server = shared().await?;
        let prefix = format!("{ATOMIC}.{}.", test.rsplit("::").next().unwrap());
        Some(Self::open(server, prefix).await)
    }

    fn broker(&self) -> Arc<dyn Broker> {
        Arc::new(self.broker.clone())
    }

    async fn reopen(self) -> Self {
        let Self { server, prefix, broker } = self;
        drop(broker);
        let server = SHARED.restart(server, async |server| server.restart().await.unwrap()).await;
        Self::open(server, prefix).await
    }
}

mod atomic {
    landfall_testkit::broker_conformance!(super::Fixture<true>);
}

mod key_by_key {
    landfall_testkit::broker_conformance!(super::Fixture<false>);
}
