//! Messages of other programs with headers that Landfall never writes.

use std::sync::Arc;

use landfall_testkit::hostile::{HostileMessage, assert_hostile_messages_block_nothing};
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::{AMQPValue, FieldTable, LongString, ShortString};
use lapin::{BasicProperties, Connection, ConnectionProperties};

use crate::support::{connect, prefix, shared};

#[tokio::test(flavor = "multi_thread")]
async fn hostile_messages_block_nothing() {
    let Some(server) = shared().await else { return };
    let prefix = prefix();
    let broker = connect(&server.url(), &prefix, "").await;
    let connection = Connection::connect(&server.url(), ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
    let exchange = ShortString::from(format!("{prefix}orders"));
    let publish = async |message: &HostileMessage| {
        let mut table = FieldTable::default();
        for (name, value) in &message.headers {
            // The client takes only text as a name.
            let Ok(name) = str::from_utf8(name) else { return false };
            table.insert(name.into(), AMQPValue::LongString(LongString::from(value.clone())));
        }
        let properties = BasicProperties::default().with_headers(table);
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let payload = message.payload.as_deref().unwrap_or_default();
        let confirm = channel.basic_publish(exchange.clone(), "x".into(), options, payload, properties).await.unwrap();
        assert!(confirm.await.unwrap().is_ack());
        true
    };
    assert_hostile_messages_block_nothing(Arc::new(broker.clone()), publish).await;
}
