//! The conformance suite on FIFO and standard queues.
//!
//! The server keeps messages over a restart. Only the FIFO suite tests that: the adapter does nothing different for
//! standard queues, and a restart is slow.

use std::sync::Arc;

use async_trait::async_trait;
use landfall_core::adapter::{BrokerCapabilities, Subscriber};
use landfall_core::{Broker, GroupName, MessageId, Publisher, Result, StartAt, TopicInfo, TopicName, TopicReader};
use landfall_sqs::{Options, Sqs};
use landfall_testkit::conformance::broker::BrokerFixture;
use landfall_testkit::servers::{ElasticMq, SharedGuard};

use crate::support::{SHARED, shared};

struct Fixture<const FIFO: bool> {
    server: SharedGuard<ElasticMq>,
    sqs: Sqs,
    prefix: String,
}

impl<const FIFO: bool> Fixture<FIFO> {
    async fn connect(server: SharedGuard<ElasticMq>, prefix: String) -> Self {
        let url = format!("sqs://key:secret@elasticmq?endpoint={}&prefix={prefix}&fifo={FIFO}", server.endpoint());
        let sqs = Sqs::connect(Options::from_url(&url).unwrap()).await.unwrap();
        Self { server, sqs, prefix }
    }
}

impl<const FIFO: bool> BrokerFixture for Fixture<FIFO> {
    async fn create() -> Option<Self> {
        Some(Self::connect(shared().await?, format!("{}-", MessageId::new())).await)
    }

    fn broker(&self) -> Arc<dyn Broker> {
        if FIFO { Arc::new(self.sqs.clone()) } else { Arc::new(NeverRestarted(self.sqs.clone())) }
    }

    async fn reopen(self) -> Self {
        let server = SHARED.restart(self.server, async |server| server.restart().await.unwrap()).await;
        Self::connect(server, self.prefix).await
    }
}

struct NeverRestarted(Sqs);

#[async_trait]
impl Broker for NeverRestarted {
    fn capabilities(&self) -> BrokerCapabilities {
        BrokerCapabilities { durable: false, ..self.0.capabilities() }
    }

    fn publisher(&self) -> Arc<dyn Publisher> {
        self.0.publisher()
    }

    async fn subscribe(&self, topic: &TopicName, group: &GroupName) -> Result<Box<dyn Subscriber>> {
        self.0.subscribe(topic, group).await
    }

    async fn topics(&self) -> Result<Vec<TopicInfo>> {
        self.0.topics().await
    }

    async fn read(&self, topic: &TopicName, from: StartAt) -> Result<Box<dyn TopicReader>> {
        self.0.read(topic, from).await
    }
}

mod fifo {
    landfall_testkit::broker_conformance!(
        super::Fixture<true>,
        without replay: "no `replay`: a queue keeps no acknowledged message",
        groups: "no `groups`: all members share one queue"
    );
}

mod standard {
    landfall_testkit::broker_conformance!(
        super::Fixture<false>,
        without ordered_by_key: "no `ordered_by_key`: a standard queue keeps no order",
        durable: "no `durable` here: the FIFO suite tests the restart of the server",
        replay: "no `replay`: a queue keeps no acknowledged message",
        groups: "no `groups`: all members share one queue",
        deduplicates: "no `deduplicates`: a standard queue stores every message"
    );
}
