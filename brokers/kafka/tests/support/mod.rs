//! What the tests share.

#![allow(dead_code, reason = "each test binary uses its part")]

pub(crate) mod traffic;

use std::sync::atomic::{AtomicU32, Ordering};

use landfall_kafka::{Kafka, Options};
use landfall_testkit::current_test;
use landfall_testkit::servers::{InUse, KafkaOptions, KafkaServer, Restartable};

/// One node for all tests of a process.
pub(crate) static SHARED: Restartable<KafkaServer> = Restartable::new();

pub(crate) async fn shared() -> Option<InUse<KafkaServer>> {
    let test = current_test();
    SHARED.use_with(async || KafkaServer::start(&test, KafkaOptions::default()).await).await
}

/// What nobody else's topics begin with.
pub(crate) fn fresh_prefix() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("t{}.", NEXT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) async fn kafka(url: &str) -> Kafka {
    Kafka::connect(Options::from_url(url).unwrap()).await.unwrap()
}
