//! The shared durable server, for tests that do not disturb it. Each test has its own prefix.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use landfall_core::Broker;
use landfall_redis::{Options, Redis};
use landfall_testkit::servers::{RedisOptions, RedisServer, SharedGuard, SharedServer};
use landfall_testkit::{current_test, eventually};

/// Timeout of every bounded wait.
pub(crate) const SOON: Duration = Duration::from_secs(60);

static SHARED: SharedServer<RedisServer> = SharedServer::new();

/// The shared server, in use until the returned guard is dropped. `None` if Redis is not installed.
pub(crate) async fn shared() -> Option<SharedGuard<RedisServer>> {
    SHARED.shared_with(own).await
}

/// A server of this test's own, which it may disturb.
pub(crate) async fn own() -> Option<RedisServer> {
    RedisServer::start_with(&current_test(), RedisOptions::durable()).await
}

/// Kills the shared server and restarts it on its data, while no other test uses it.
pub(crate) async fn restart(used: SharedGuard<RedisServer>) -> SharedGuard<RedisServer> {
    SHARED.restart(used, async |server: &RedisServer| server.restart().await.unwrap()).await
}

/// A prefix that no other test uses.
pub(crate) fn fresh_prefix() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test-{}:", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Options for the server at `port`, with `parameters` and a fresh prefix.
pub(crate) fn options_for(port: u16, parameters: &str) -> Options {
    Options::from_url(&format!("redis://127.0.0.1:{port}/0?prefix={}&{parameters}", fresh_prefix())).unwrap()
}

pub(crate) async fn connect(port: u16, parameters: &str) -> Redis {
    Redis::connect(options_for(port, parameters)).await.unwrap()
}

/// `count` brokers with the same prefix, each with its own connections.
pub(crate) async fn several(options: &Options, count: usize) -> Vec<Arc<dyn Broker>> {
    let mut brokers: Vec<Arc<dyn Broker>> = Vec::new();
    for _ in 0..count {
        // With short timeouts the first attempt may fail.
        let mut redis = None;
        eventually(SOON, "the broker connects", async || {
            redis = Redis::connect(options.clone()).await.ok();
            redis.is_some()
        })
        .await;
        brokers.push(Arc::new(redis.unwrap()));
    }
    brokers
}
