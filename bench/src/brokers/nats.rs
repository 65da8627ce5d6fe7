//! NATS JetStream compared with async-nats: streams on disk with the same settings. The server acknowledges every
//! message, and the client acknowledges every delivery.

use std::sync::Arc;

use async_nats::jetstream::consumer::pull;
use async_nats::jetstream::stream::{Config, DiscardPolicy};
use async_nats::jetstream::{self, Context};
use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::future::try_join_all;
use landfall::{Broker, Message};
use landfall_testkit::servers::{NatsOptions, NatsServer};

use super::{Client, Contender};
use crate::Result;
use crate::workload::{GROUP, TOPIC};

/// The adapter's default number of shards.
const SHARDS: u32 = 8;

struct Nats {
    server: NatsServer,
    version: String,
}

pub(super) async fn start() -> Result<Option<Box<dyn Contender>>> {
    let Some(server) = NatsServer::start("NATS", NatsOptions::default()).await else { return Ok(None) };
    let version = async_nats::connect(server.url()).await?.server_info().version;
    Ok(Some(Box::new(Nats { server, version })))
}

#[async_trait]
impl Contender for Nats {
    fn name(&self) -> String {
        format!("NATS {}", self.version)
    }

    fn client_name(&self) -> &'static str {
        "async-nats"
    }

    async fn adapter(&self, prefix: &str) -> Result<Arc<dyn Broker>> {
        let options = landfall::nats::Options::from_url(&format!("{}?prefix={prefix}", self.server.url()))?;
        Ok(Arc::new(landfall::nats::Nats::connect(options).await?))
    }

    async fn client(&self, prefix: &str) -> Result<Box<dyn Client>> {
        let context = jetstream::new(async_nats::connect(self.server.url()).await?);
        let stream = format!("{prefix}{TOPIC}");
        let config = Config {
            name: stream.clone(),
            subjects: (0..SHARDS).map(|shard| format!("{stream}.{shard}")).collect(),
            discard: DiscardPolicy::New,
            ..Config::default()
        };
        context.create_stream(config).await?;
        Ok(Box::new(AsyncNats { context, stream, deliveries: None }))
    }
}

struct AsyncNats {
    context: Context,
    stream: String,
    deliveries: Option<pull::Stream>,
}

#[async_trait]
impl Client for AsyncNats {
    async fn publish(&mut self, messages: &[Message]) -> Result<()> {
        let mut acknowledgements = Vec::with_capacity(messages.len());
        for message in messages {
            let shard = message.key.as_ref().map_or(0, |key| key.partition(SHARDS));
            let mut headers = async_nats::HeaderMap::new();
            headers.insert("Nats-Msg-Id", message.id.to_string());
            for (name, value) in landfall::wire::headers(message, "bench") {
                headers.insert(name, value);
            }
            let subject = format!("{}.{shard}", self.stream);
            acknowledgements.push(self.context.publish_with_headers(subject, headers, message.payload.clone()).await?);
        }
        try_join_all(acknowledgements.into_iter().map(IntoFuture::into_future)).await?;
        Ok(())
    }

    async fn consume(&mut self, count: u64) -> Result<()> {
        let deliveries = match &mut self.deliveries {
            Some(deliveries) => deliveries,
            None => {
                let config = pull::Config { durable_name: Some(GROUP.into()), ..pull::Config::default() };
                let consumer = self.context.create_consumer_on_stream(config, self.stream.as_str()).await?;
                self.deliveries.insert(consumer.stream().max_messages_per_batch(500).messages().await?)
            }
        };
        for _ in 0..count {
            let message = deliveries.next().await.ok_or("the consumer ended")??;
            message.ack().await.map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}
