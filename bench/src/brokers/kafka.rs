//! Kafka, one node, compared with plain librdkafka.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join_all;
use landfall::kafka::{Kafka, Options};
use landfall::{Broker, Message, wire};
use landfall_testkit::servers::{KafkaOptions, KafkaServer};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{Consumer, StreamConsumer};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord};

use super::{Client, Contender};
use crate::Result;
use crate::workload::{GROUP, TOPIC};

const PARTITIONS: i32 = 12;

pub(super) async fn start() -> Result<Option<Box<dyn Contender>>> {
    let options = KafkaOptions { compiled: true, ..KafkaOptions::default() };
    let server = KafkaServer::start("landfall-bench: Kafka", options).await;
    Ok(server.map(|server| Box::new(OneNode { server }) as Box<dyn Contender>))
}

struct OneNode {
    server: KafkaServer,
}

#[async_trait]
impl Contender for OneNode {
    fn name(&self) -> String {
        "Kafka 4.1".into()
    }

    fn client_name(&self) -> &'static str {
        "rdkafka"
    }

    async fn adapter(&self, prefix: &str) -> Result<Arc<dyn Broker>> {
        let url = format!("{}?prefix={prefix}&partitions={PARTITIONS}", self.server.url().await);
        Ok(Arc::new(Kafka::connect(Options::from_url(&url)?).await?))
    }

    async fn client(&self, prefix: &str) -> Result<Box<dyn Client>> {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.server.address());
        let topic = format!("{prefix}{TOPIC}");
        let admin: AdminClient<DefaultClientContext> = config.create()?;
        let new = NewTopic::new(&topic, PARTITIONS, TopicReplication::Fixed(1));
        for created in admin.create_topics([&new], &AdminOptions::new()).await? {
            created.map_err(|(topic, code)| format!("cannot create topic {topic}: {code}"))?;
        }
        let producer = config.clone().set("enable.idempotence", "true").set("linger.ms", "1").create()?;
        config.set("group.id", format!("{prefix}{GROUP}")).set("auto.offset.reset", "earliest");
        Ok(Box::new(RawClient { topic, producer, config, consumer: None }))
    }
}

/// librdkafka alone, as durable as the adapter: every replica acknowledges, and only processed offsets are committed.
struct RawClient {
    topic: String,
    producer: FutureProducer,
    config: ClientConfig,
    consumer: Option<StreamConsumer>,
}

#[async_trait]
impl Client for RawClient {
    async fn publish(&mut self, messages: &[Message]) -> Result<()> {
        let sent = messages.iter().map(|message| {
            let headers = wire::headers(message, "bench");
            let headers =
                headers.iter().fold(OwnedHeaders::new_with_capacity(headers.len()), |headers, (name, value)| {
                    headers.insert(Header { key: name, value: Some(value) })
                });
            let record = FutureRecord::to(&self.topic).payload(&message.payload[..]).headers(headers);
            let key = message.key.as_ref().map(|key| key.as_str());
            self.producer.send_result(FutureRecord { key, ..record }).map_err(|(error, _)| error)
        });
        let sent = sent.collect::<std::result::Result<Vec<_>, _>>()?;
        for delivered in join_all(sent).await {
            delivered?.map_err(|(error, _)| error)?;
        }
        Ok(())
    }

    async fn consume(&mut self, count: u64) -> Result<()> {
        let consumer = match &mut self.consumer {
            Some(consumer) => consumer,
            None => {
                let mut config = self.config.clone();
                config.set("partition.assignment.strategy", "cooperative-sticky");
                config.set("enable.auto.offset.store", "false").set("auto.commit.interval.ms", "500");
                let consumer: StreamConsumer = config.create()?;
                consumer.subscribe(&[&self.topic])?;
                self.consumer.insert(consumer)
            }
        };
        for _ in 0..count {
            let record = consumer.recv().await?;
            // A real service reads the record.
            std::hint::black_box(record.detach());
            consumer.store_offset_from_message(&record)?;
        }
        Ok(())
    }
}
