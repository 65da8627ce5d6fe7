//! Records of other producers with headers that Landfall never writes.

use std::sync::Arc;

use landfall_testkit::hostile::{HostileMessage, assert_hostile_messages_block_nothing};
use rdkafka::ClientConfig;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord};

use crate::support::{SOON, fresh_prefix, kafka, shared};

#[tokio::test(flavor = "multi_thread")]
async fn hostile_records_block_nothing() {
    let Some(server) = shared().await else { return };
    let prefix = fresh_prefix();
    let broker = kafka(&format!("{}?prefix={prefix}&partitions=1", server.url().await)).await;
    let producer: FutureProducer = ClientConfig::new().set("bootstrap.servers", server.address()).create().unwrap();
    let topic = format!("{prefix}orders");
    let publish = async |message: &HostileMessage| {
        let mut headers = OwnedHeaders::new();
        for (name, value) in &message.headers {
            // The client takes only text as a name.
            let Ok(key) = str::from_utf8(name) else { return false };
            headers = headers.insert(Header { key, value: Some(value) });
        }
        let mut record = FutureRecord::<[u8], [u8]>::to(&topic).headers(headers);
        record.payload = message.payload.as_deref();
        producer.send(record, SOON).await.unwrap();
        true
    };
    assert_hostile_messages_block_nothing(Arc::new(broker.clone()), publish).await;
}
