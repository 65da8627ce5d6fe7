//! Messages of other programs with attributes that Landfall never writes.

use std::sync::Arc;

use aws_config::{BehaviorVersion, Region};
use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::Credentials;
use aws_sdk_sqs::primitives::Blob;
use aws_sdk_sqs::types::MessageAttributeValue;
use landfall_core::MessageId;
use landfall_sqs::{Options, Sqs};
use landfall_testkit::hostile::{HostileMessage, assert_hostile_messages_block_nothing};

use crate::support::shared;

/// AWS's own client.
async fn client(endpoint: &str) -> Client {
    let loader = aws_config::defaults(BehaviorVersion::latest())
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .region(Region::new("us-east-1"))
        .endpoint_url(endpoint)
        .credentials_provider(Credentials::new("key", "secret", None, None, "test"));
    Client::new(&loader.load().await)
}

/// Text, or bytes if it is none.
fn attribute(value: &[u8]) -> MessageAttributeValue {
    let builder = MessageAttributeValue::builder();
    let builder = match str::from_utf8(value) {
        Ok(text) => builder.data_type("String").string_value(text),
        Err(_) => builder.data_type("Binary").binary_value(Blob::new(value)),
    };
    builder.build().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_messages_block_nothing() {
    let Some(server) = shared().await else { return };
    let endpoint = server.endpoint();
    let url = format!("sqs://key:secret@us-east-1?endpoint={endpoint}&prefix=hostile-&timeout=5s&wait=2s");
    let sqs = Sqs::connect(Options::from_url(&url).unwrap()).await.unwrap();
    let client = client(&endpoint).await;
    let publish = async |message: &HostileMessage| {
        let queue = client.get_queue_url().queue_name("hostile-orders.fifo").send().await.unwrap();
        let id = MessageId::new().to_string();
        let mut send = client.send_message().queue_url(queue.queue_url().unwrap()).message_group_id(&id);
        send = send.message_deduplication_id(&id).message_body(
            message.payload.as_deref().map(|payload| String::from_utf8_lossy(payload)).unwrap_or_default(),
        );
        for (name, value) in &message.headers {
            let Ok(name) = str::from_utf8(name) else { return false };
            send = send.message_attributes(name, attribute(value));
        }
        // The server refuses empty bodies, many attributes and some names.
        send.send().await.is_ok()
    };
    assert_hostile_messages_block_nothing(Arc::new(sqs.clone()), publish).await;
}
