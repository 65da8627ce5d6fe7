//! FIFO queues of SQS, on an ElasticMQ that has everything on disk before it answers. It is slower than SQS with many
//! messages and faster with one, since it is near.

use std::sync::Arc;

use async_trait::async_trait;
use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_sqs::types::{
    DeleteMessageBatchRequestEntry, MessageAttributeValue, QueueAttributeName, SendMessageBatchRequestEntry,
};
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use futures_util::{StreamExt, TryStreamExt, stream};
use landfall::adapter::wire;
use landfall::sqs::{Options, Sqs};
use landfall::{Broker, Message};
use landfall_testkit::servers::ElasticMq;

use super::{Client, Contender};
use crate::Result;

/// What a call takes, and as many calls at once as the adapter makes by itself.
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
        let made = queue.attributes(QueueAttributeName::FifoQueue, "true").send().await?;
        Ok(Box::new(Bare { client, url: made.queue_url.ok_or("the queue has no URL")?, ahead: 0 }))
    }
}

/// The SDK alone: the same attributes in calls of ten, as many side by side.
struct Bare {
    client: aws_sdk_sqs::Client,
    url: String,
    /// What was taken beyond what was asked for.
    ahead: u64,
}

impl Bare {
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
        let answer = call.send().await?;
        if answer.successful.len() != messages.len() {
            return Err(format!("some messages were not accepted: {:?}", answer.failed).into());
        }
        Ok(())
    }

    /// Takes what one call brings and acknowledges it.
    async fn take(&self) -> Result<u64> {
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
            false => Err("some messages were not acknowledged".into()),
        }
    }
}

#[async_trait]
impl Client for Bare {
    async fn publish(&mut self, messages: &[Message]) -> Result<()> {
        let calls = messages.chunks(CALL).map(|chunk| self.send(chunk));
        stream::iter(calls.collect::<Vec<_>>()).buffer_unordered(SENDERS).try_collect().await
    }

    async fn consume(&mut self, count: u64) -> Result<()> {
        // A call may bring more than was asked for; the next one has them already.
        let mut taken = std::mem::take(&mut self.ahead);
        // A call that is dropped hides what it brought for a while, so there is one at a time where one is enough.
        while taken < count && count <= CALL as u64 {
            taken += self.take().await?;
        }
        let mut calls = stream::repeat(()).map(|()| self.take()).buffer_unordered(RECEIVERS);
        while taken < count {
            taken += calls.next().await.ok_or("a stream without end has ended")??;
        }
        drop(calls);
        self.ahead = taken - count;
        Ok(())
    }
}
