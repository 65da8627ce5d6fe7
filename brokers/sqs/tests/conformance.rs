//! FIFO and standard queues against the suite that every broker runs.
//!
//! The server keeps messages over a restart, as SQS does over anything.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use landfall_core::{Broker, MessageId};
use landfall_sqs::{Options, Sqs};
use landfall_testkit::conformance::broker::BrokerFixture;
use landfall_testkit::current_test;
use landfall_testkit::servers::{ElasticMq, InUse, Restartable};

static SERVER: Restartable<ElasticMq> = Restartable::new();

struct Fixture<const FIFO: bool> {
    server: InUse<ElasticMq>,
    sqs: Sqs,
    prefix: String,
}

impl<const FIFO: bool> Fixture<FIFO> {
    async fn connect(server: InUse<ElasticMq>, prefix: String) -> Self {
        let url = format!("sqs://key:secret@elasticmq?endpoint={}&prefix={prefix}&fifo={FIFO}", server.endpoint());
        let sqs = Sqs::connect(Options::from_url(&url).unwrap()).await.unwrap();
        Self { server, sqs, prefix }
    }
}

impl<const FIFO: bool> BrokerFixture for Fixture<FIFO> {
    async fn create() -> Option<Self> {
        let server = SERVER.use_with(async || ElasticMq::start(&current_test()).await).await?;
        Some(Self::connect(server, format!("{}-", MessageId::new())).await)
    }

    fn broker(&self) -> Arc<dyn Broker> {
        Arc::new(self.sqs.clone())
    }

    async fn reopen(self) -> Self {
        let server = SERVER.restart(self.server, async |server| server.restart().await.unwrap()).await;
        Self::connect(server, self.prefix).await
    }
}

mod fifo {
    landfall_testkit::broker_conformance!(super::Fixture<true>);
}

mod standard {
    landfall_testkit::broker_conformance!(super::Fixture<false>);
}
