//! FIFO queues of SQS, on an ElasticMQ that writes everything to disk before it replies. Compared with SQS it is slower
//! with many messages and faster with one, because it runs on the same machine.

use std::sync::Arc;

use async_trait::async_trait;
use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_sqs::types::{
    DeleteMessageBatchRequestEntry, MessageAttributeValue, QueueAttributeName, SendMessageBatchRequestEntry,
};
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use futures_util::{StreamExt, TryStreamExt, stream};
use landfall::sqs::{Options, Sqs};
use landfall::{Broker, Message, wire};
use landfall_testkit::servers::ElasticMq;

use super::{Client, Contender};
use crate::Result;

/// SQS's batch limit, and the adapter's default numbers of concurrent calls.
const CALL: usize = 10;
const SENDERS: usize = 16;
const RECEIVERS: usize = 4;

pub(super) async fn start() -> Result<Option<Box<dyn Contender>>> {
    let Some(server) = ElasticMq::start("bench").await else { return Ok(None) };
    Ok(Some(Box::new(OnElasticMq { server })))
}

struct OnElasticMq {
    server: ElasticMq,
}

#[async_trait]
impl Contender for OnElasticMq {
    fn name(&self) -> String {
        "SQS (ElasticMQ 1.7.1)".into()
    }

    fn client_name(&self) -> &'static str {
        "aws-sdk-sqs"
    }

    async fn adapter(&self, prefix: &str) -> Result<Arc<dyn Broker>> {
        let url = format!("sqs://key:secret@bench?endpoint={}&prefix={prefix}", self.server.endpoint());
        Ok(Arc::new(Sqs::connect(Options::from_url(&url)?).await?))
    }

    async fn client(&self, prefix: &str) -> Result<Box<dyn Client>> {
        let http = aws_smithy_http_client::Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring));
        let config = aws_sdk_sqs::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .http_client(http.build_https())
            .region(Region::from_static("bench"))
            .endpoint_url(self.server.endpoint())
            .credentials_provider(Credentials::new("key", "secret", None, None, "bench"))
            .build();
        let client = aws_sdk_sqs::Client::from_conf(config);
        let queue = client.create_queue().queue_name(format!("{prefix}orders.fifo"));
        let created = queue.attributes(QueueAttributeName::FifoQueue, "true").send().await?;
        Ok(Box::new(RawClient { client, url: created.queue_url.ok_or("the queue has no URL")?, prefetched: 0 }))
    }
}

/// The SDK alone: the same attributes in calls of ten, with the adapter's concurrency.
struct RawClient {
    client: aws_sdk_sqs::Client,
    url: String,
    /// The number of messages received beyond what `consume` asked for.
    prefetched: u64,
}

impl RawClient {
    async fn send(&self, messages: &[Message]) -> Result<()> {
        let mut call = self.client.send_message_batch().queue_url(&self.url);
        for message in messages {
            let mut entry = SendMessageBatchRequestEntry::builder()
                .id(message.id.to_string())
                .message_group_id(message.key.as_ref().ok_or("every message has a key")?.as_str())
                .message_deduplication_id(message.id.to_string())
                .message_body(String::from_utf8(message.payload.to_vec())?);
            for (name, value) in wire::headers(message, "bench") {
                let value = MessageAttributeValue::builder().data_type("String").string_value(value).build()?;
                entry = entry.message_attributes(name, value);
            }
            call = call.entries(entry.build()?);
        }
        let response = call.send().await?;
        if response.successful.len() != messages.len() {
            return Err(format!("SQS did not accept some messages: {:?}", response.failed).into());
        }
        Ok(())
    }

    /// Receives the messages of one call and acknowledges them.
    async fn receive(&self) -> Result<u64> {
        let call = self.client.receive_message().queue_url(&self.url).max_number_of_messages(CALL as i32);
        let call = call.message_attribute_names("All").wait_time_seconds(1);
        let messages = call.send().await?.messages.unwrap_or_default();
        if messages.is_empty() {
            return Ok(0);
        }
        let mut call = self.client.delete_message_batch().queue_url(&self.url);
        for (number, message) in messages.iter().enumerate() {
            let entry = DeleteMessageBatchRequestEntry::builder().id(number.to_string());
            call = call.entries(entry.receipt_handle(message.receipt_handle().unwrap_or_default()).build()?);
        }
        match call.send().await?.failed.is_empty() {
            true => Ok(messages.len() as u64),
            false => Err("SQS did not acknowledge the deletion of some messages".into()),
        }
    }
}

#[async_trait]
impl Client for RawClient {
    async fn publish(&mut self, messages: &[Message]) -> Result<()> {
        let calls = messages.chunks(CALL).map(|chunk| self.send(chunk));
        stream::iter(calls.collect::<Vec<_>>()).buffer_unordered(SENDERS).try_collect().await
    }

    async fn consume(&mut self, count: u64) -> Result<()> {
        // A call may return more messages than requested; the next `consume` starts with them.
        let mut received = std::mem::take(&mut self.prefetched);
        // Dropping a call hides its messages until their visibility timeout, so small counts use one call at a time.
        while received < count && count <= CALL as u64 {
            received += self.receive().await?;
        }
        let mut calls = stream::repeat(()).map(|()| self.receive()).buffer_unordered(RECEIVERS);
        while received < count {
            received += calls.next().await.ok_or("the endless stream of calls ended")??;
        }
        drop(calls);
        self.prefetched = received - count;
        Ok(())
    }
}
