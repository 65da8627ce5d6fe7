//! What the tests of this adapter share: one durable Redis per process, and names of its own for each test.

#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, reason = "each test file uses a part of it")]

pub(crate) mod load;

use std::sync::atomic::{AtomicU32, Ordering};

use landfall_core::{GroupName, Key, Message, TopicName};
use landfall_redis::{Options, Redis};
use landfall_testkit::current_test;
use landfall_testkit::servers::{InUse, RedisOptions, RedisServer, Restartable};

static SERVER: Restartable<RedisServer> = Restartable::new();

/// The server that the tests of this process share; `None` where there is no Redis.
pub(crate) async fn server() -> Option<InUse<RedisServer>> {
    SERVER.use_with(async || RedisServer::start_with(&current_test(), RedisOptions::durable()).await).await
}

/// Kills the shared server and starts it on what it stored, while nobody else uses it.
pub(crate) async fn restart(used: InUse<RedisServer>) -> InUse<RedisServer> {
    SERVER.restart(used, async |server: &RedisServer| server.restart().await.unwrap()).await
}

/// A prefix that no other test has.
pub(crate) fn fresh_prefix() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test-{}:", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The options for a server at `port`, from a URL with `parameters` and names of its own.
pub(crate) fn options(port: u16, parameters: &str) -> Options {
    Options::from_url(&format!("redis://127.0.0.1:{port}/0?prefix={}&{parameters}", fresh_prefix())).unwrap()
}

pub(crate) async fn connect(port: u16, parameters: &str) -> Redis {
    Redis::connect(options(port, parameters)).await.unwrap()
}

pub(crate) fn topic(name: &str) -> TopicName {
    TopicName::new(name).unwrap()
}

pub(crate) fn group(name: &str) -> GroupName {
    GroupName::new(name).unwrap()
}

/// Message number `sequence` of `key` on the topic `orders`.
pub(crate) fn keyed(key: &str, sequence: i64) -> Message {
    let message = Message::new(topic("orders"), format!("{key}/{sequence}"));
    message.with_key(Key::new(key).unwrap()).with_sequence(sequence)
}
