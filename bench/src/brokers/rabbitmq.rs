//! RabbitMQ with quorum queues, on one server.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::{SelectAll, select_all};
use futures_util::{StreamExt, future};
use landfall::rabbitmq::{Options, RabbitMq};
use landfall::{Broker, Message, wire};
use landfall_testkit::servers::RabbitMqServer;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions,
    ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, Consumer, ExchangeKind};

use super::{Client, Contender};
use crate::Result;

/// The adapter's defaults: the number of queues, and the prefetch of a consumer.
const QUEUES: u32 = 4;
const PREFETCH: u16 = 250;

pub(super) async fn start() -> Result<Option<Box<dyn Contender>>> {
    let Some(server) = RabbitMqServer::start("bench").await else { return Ok(None) };
    Ok(Some(Box::new(OnRabbitMq { server })))
}

struct OnRabbitMq {
    server: RabbitMqServer,
}

#[async_trait]
impl Contender for OnRabbitMq {
    fn name(&self) -> String {
        "RabbitMQ 3.10".into()
    }

    fn client_name(&self) -> &'static str {
        "lapin"
    }

    async fn adapter(&self, prefix: &str) -> Result<Arc<dyn Broker>> {
        let url = format!("{}?prefix={prefix}", self.server.url());
        Ok(Arc::new(RabbitMq::connect(Options::from_url(&url)?).await?))
    }

    async fn client(&self, prefix: &str) -> Result<Box<dyn Client>> {
        let connection = Connection::connect(&self.server.url(), ConnectionProperties::default()).await?;
        let channel = connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        let exchange = format!("{prefix}orders");
        let options = ExchangeDeclareOptions { durable: true, ..Default::default() };
        channel.exchange_declare(exchange.clone().into(), ExchangeKind::Direct, options, FieldTable::default()).await?;
        for number in 0..QUEUES {
            let mut arguments = FieldTable::default();
            arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
            arguments.insert("x-single-active-consumer".into(), AMQPValue::Boolean(true));
            let (queue, options) =
                (format!("{exchange}.{number}"), QueueDeclareOptions { durable: true, ..Default::default() });
            channel.queue_declare(queue.clone().into(), options, arguments).await?;
            let (from, key, options) = (exchange.clone(), number.to_string(), QueueBindOptions::default());
            channel.queue_bind(queue.into(), from.into(), key.into(), options, FieldTable::default()).await?;
        }
        Ok(Box::new(RawClient { connection, channel, exchange, consumers: None }))
    }
}

/// lapin alone: the same headers, all messages in flight at once, and a confirm for each.
struct RawClient {
    connection: Connection,
    channel: Channel,
    exchange: String,
    consumers: Option<(Channel, SelectAll<Consumer>)>,
}

impl RawClient {
    async fn send(&self, message: &Message) -> Result<()> {
        let mut headers = FieldTable::default();
        for (name, value) in wire::headers(message, "landfall") {
            headers.insert(name.into(), AMQPValue::LongString(value.into()));
        }
        let properties = BasicProperties::default()
            .with_delivery_mode(2)
            .with_message_id(message.id.to_string().into())
            .with_headers(headers);
        let key = message.key.as_ref().ok_or("every message has a key")?.partition(QUEUES).to_string();
        let options = BasicPublishOptions { mandatory: true, immediate: false };
        let publish =
            self.channel.basic_publish(self.exchange.clone().into(), key.into(), options, &message.payload, properties);
        match publish.await?.await? {
            Confirmation::Ack(None) => Ok(()),
            other => Err(format!("RabbitMQ did not confirm a message: {other:?}").into()),
        }
    }

    async fn subscribe(&self) -> Result<(Channel, SelectAll<Consumer>)> {
        let channel = self.connection.create_channel().await?;
        channel.basic_qos(PREFETCH, BasicQosOptions::default()).await?;
        let mut consumers = Vec::new();
        for number in 0..QUEUES {
            let (queue, options) = (format!("{}.{number}", self.exchange), BasicConsumeOptions::default());
            consumers.push(channel.basic_consume(queue.into(), "".into(), options, FieldTable::default()).await?);
        }
        Ok((channel, select_all(consumers)))
    }
}

#[async_trait]
impl Client for RawClient {
    async fn publish(&mut self, messages: &[Message]) -> Result<()> {
        future::try_join_all(messages.iter().map(|message| self.send(message))).await?;
        Ok(())
    }

    async fn consume(&mut self, count: u64) -> Result<()> {
        if self.consumers.is_none() {
            self.consumers = Some(self.subscribe().await?);
        }
        let (_, consumers) = self.consumers.as_mut().ok_or("the consumer is missing")?;
        for _ in 0..count {
            let delivery = consumers.next().await.ok_or("the consumer has ended")??;
            delivery.ack(BasicAckOptions::default()).await?;
        }
        Ok(())
    }
}
