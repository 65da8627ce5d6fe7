//! Messages of other programs with headers that Landfall never writes, byte for byte.

use std::sync::Arc;

use landfall_core::TopicAdministration;
use landfall_testkit::hostile::{HostileMessage, assert_hostile_messages_block_nothing};
use landfall_testkit::traffic::orders;

use crate::support::{connect, publish_raw, shared};

#[tokio::test(flavor = "multi_thread")]
async fn hostile_messages_block_nothing() {
    let Some(server) = shared().await else { return };
    // The client drops its connection on headers that it cannot parse; short timeouts limit each pause.
    let url = format!("{}?prefix=hostile.&partitions=1&session_timeout=2s&timeout=2s", server.url());
    let broker = connect(&url).await;
    broker.create_topic(&orders(), None).await.unwrap();
    let publish = async |message: &HostileMessage| {
        let mut headers = b"NATS/1.0\r\n".to_vec();
        for (name, value) in &message.headers {
            headers.extend_from_slice(&[name, &b": "[..], value, b"\r\n"].concat());
        }
        headers.extend_from_slice(b"\r\n");
        publish_raw(&server, "hostile.orders.0", &headers, message.payload.as_deref().unwrap_or_default()).await;
        true
    };
    assert_hostile_messages_block_nothing(Arc::new(broker.clone()), publish).await;
}
