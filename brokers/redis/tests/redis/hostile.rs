//! Entries of other programs with fields that Landfall never writes.

use std::sync::Arc;

use landfall_redis::Redis;
use landfall_testkit::hostile::{HostileMessage, assert_hostile_messages_block_nothing};

use crate::support::{options_for, shared};

#[tokio::test(flavor = "multi_thread")]
async fn hostile_entries_block_nothing() {
    let Some(server) = shared().await else { return };
    let options = options_for(server.port(), "partitions=1");
    let redis = Redis::connect(options.clone()).await.unwrap();
    let client = redis::Client::open(format!("redis://127.0.0.1:{}/", server.port())).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let stream = format!("{}{{orders/0}}", options.prefix);
    let publish = async |message: &HostileMessage| {
        let payload = message.payload.iter().map(|payload| (b"ce_data".to_vec(), payload.clone()));
        let mut add = redis::cmd("XADD");
        add.arg(&stream).arg("*");
        for (name, value) in message.headers.iter().cloned().chain(payload) {
            add.arg(name).arg(value);
        }
        add.query_async::<String>(&mut connection).await.unwrap();
        true
    };
    assert_hostile_messages_block_nothing(Arc::new(redis.clone()), publish).await;
}
