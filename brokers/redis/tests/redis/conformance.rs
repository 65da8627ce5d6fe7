//! The conformance suite, on a Redis that syncs its append-only file before every answer.

use std::sync::Arc;

use landfall_core::Broker;
use landfall_redis::{Options, Redis};
use landfall_testkit::conformance::broker::BrokerFixture;
use landfall_testkit::servers::{RedisServer, SharedGuard};

use crate::support::{options_for, restart, shared};

struct Fixture {
    server: SharedGuard<RedisServer>,
    options: Options,
    redis: Arc<Redis>,
}

impl Fixture {
    async fn connect(server: SharedGuard<RedisServer>, options: Options) -> Self {
        let redis = Arc::new(Redis::connect(options.clone()).await.unwrap());
        Self { server, options, redis }
    }
}

impl BrokerFixture for Fixture {
    async fn create() -> Option<Self> {
        let server = shared().await?;
        let options = options_for(server.port(), "");
        Some(Self::connect(server, options).await)
    }

    fn broker(&self) -> Arc<dyn Broker> {
        self.redis.clone()
    }

    async fn reopen(self) -> Self {
        let Self { server, options, redis } = self;
        drop(redis);
        Self::connect(restart(server).await, options).await
    }
}

landfall_testkit::broker_conformance!(
    Fixture,
    without payload_bytes: "no `payload_bytes`: the broker accepts every payload that Landfall does"
);

#[tokio::test]
async fn durable_redis_has_all_capabilities() {
    let Some(fixture) = Fixture::create().await else { return };
    assert_eq!(fixture.broker().capabilities(), landfall_core::adapter::BrokerCapabilities::ALL);
}
