//! The suite that every broker passes, on a Redis whose append-only file is synced before every answer.

use std::sync::Arc;

use landfall_core::Broker;
use landfall_redis::{Options, Redis};
use landfall_testkit::conformance::broker::BrokerFixture;
use landfall_testkit::servers::{InUse, RedisServer};

use crate::support::{options_for, restart, shared};

struct Fixture {
    server: InUse<RedisServer>,
    options: Options,
    redis: Arc<Redis>,
}

impl Fixture {
    async fn connect(server: InUse<RedisServer>, options: Options) -> Self {
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

landfall_testkit::broker_conformance!(Fixture);

#[tokio::test]
async fn a_redis_that_syncs_before_it_answers_can_do_everything() {
    let Some(fixture) = Fixture::create().await else { return };
    assert_eq!(fixture.broker().capabilities(), landfall_core::BrokerCapabilities::ALL);
}
