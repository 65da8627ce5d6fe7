//! The shared server, for tests that do not disturb it, and helpers to connect.

use std::sync::Arc;
use std::time::Duration;

use landfall_core::{Broker, MessageId};
use landfall_sqs::{Options, Sqs};
use landfall_testkit::current_test;
use landfall_testkit::servers::{ElasticMq, SharedGuard, SharedServer};
use landfall_testkit::traffic::{Plan, Traffic};

/// Timeout of every bounded wait.
pub(crate) const SOON: Duration = Duration::from_secs(60);

pub(crate) static SHARED: SharedServer<ElasticMq> = SharedServer::new();

/// The shared server, in use until the returned guard is dropped. `None` if it is not installed.
pub(crate) async fn shared() -> Option<SharedGuard<ElasticMq>> {
    SHARED.shared_with(own).await
}

/// A server for tests that kill or pause it. Starting one is cheaper than making the other tests wait.
pub(crate) async fn own() -> Option<ElasticMq> {
    ElasticMq::start(&current_test()).await
}

/// FIFO queues at `endpoint` with a fresh prefix and short timeouts.
pub(crate) async fn connect(endpoint: &str) -> Sqs {
    connect_with(endpoint, "timeout=5s&visibility=4s&wait=2s").await
}

pub(crate) async fn connect_with(endpoint: &str, parameters: &str) -> Sqs {
    let url = format!("sqs://key:secret@test?endpoint={endpoint}&prefix={}-&{parameters}", MessageId::new());
    Sqs::connect(Options::from_url(&url).unwrap()).await.unwrap()
}

/// One publisher and one consumer. Each message needs several calls, so fewer are in flight than in other adapters'
/// tests.
pub(crate) async fn traffic(sqs: &Sqs) -> Traffic {
    let sqs: Arc<dyn Broker> = Arc::new(sqs.clone());
    let plan = Plan { keys: 10, batch: 50, backlog: 200, ..Plan::default() };
    Traffic::start_with(plan, sqs.clone(), [sqs]).await
}
