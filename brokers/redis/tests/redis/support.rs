//! One durable Redis for all tests that do it no harm, and names of its own for each test.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use landfall_core::Broker;
use landfall_redis::{Options, Redis};
use landfall_testkit::servers::{InUse, RedisOptions, RedisServer, Restartable};
use landfall_testkit::{current_test, eventually};

/// Within this a bounded wait must have seen what it waits for.
pub(crate) const SOON: Duration = Duration::from_secs(60);

static SHARED: Restartable<RedisServer> = Restartable::new();

/// The server, for as long as the answer is held; `None` where there is no Redis.
pub(crate) async fn shared() -> Option<InUse<RedisServer>> {
    SHARED.use_with(own).await
}

/// A server that this test may do anything with.
pub(crate) async fn own() -> Option<RedisServer> {
    RedisServer::start_with(&current_test(), RedisOptions::durable()).await
}

/// Kills the shared server and starts it on what it stored, while nobody else uses it.
pub(crate) async fn restart(used: InUse<RedisServer>) -> InUse<RedisServer> {
    SHARED.restart(used, async |server: &RedisServer| server.restart().await.unwrap()).await
}

/// A prefix that no other test has.
pub(crate) fn fresh_prefix() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test-{}:", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The options for a server at `port`, from a URL with `parameters` and names of its own.
pub(crate) fn options_for(port: u16, parameters: &str) -> Options {
    Options::from_url(&format!("redis://127.0.0.1:{port}/0?prefix={}&{parameters}", fresh_prefix())).unwrap()
}

pub(crate) async fn connect(port: u16, parameters: &str) -> Redis {
    Redis::connect(options_for(port, parameters)).await.unwrap()
}

/// As many brokers as asked for on the same names, each with connections of its own.
pub(crate) async fn several(options: &Options, count: usize) -> Vec<Arc<dyn Broker>> {
    let mut brokers: Vec<Arc<dyn Broker>> = Vec::new();
    for _ in 0..count {
        // Impatient ones may have to ask twice.
        let mut redis = None;
        eventually(SOON, "Redis lets us in", async || {
            redis = Redis::connect(options.clone()).await.ok();
            redis.is_some()
        })
        .await;
        brokers.push(Arc::new(redis.unwrap()));
    }
    brokers
}
