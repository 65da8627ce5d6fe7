//! One server for all tests that do it no harm, and what they talk to it with.

use std::sync::Arc;
use std::time::Duration;

use landfall_core::{Broker, MessageId};
use landfall_sqs::{Options, Sqs};
use landfall_testkit::current_test;
use landfall_testkit::servers::{ElasticMq, InUse, Restartable};
use landfall_testkit::traffic::{Plan, Traffic};

/// Within this everything that heals must have healed.
pub(crate) const SOON: Duration = Duration::from_secs(60);

pub(crate) static SHARED: Restartable<ElasticMq> = Restartable::new();

/// The server, for as long as the answer is held; `None` where there is none.
pub(crate) async fn shared() -> Option<InUse<ElasticMq>> {
    SHARED.use_with(own).await
}

/// A server for one who kills or pauses it. Its start costs less than it would cost the others to stand aside.
pub(crate) async fn own() -> Option<ElasticMq> {
    ElasticMq::start(&current_test()).await
}

/// FIFO queues at `endpoint` with names of their own, and with as little patience as a test has.
pub(crate) async fn connect(endpoint: &str) -> Sqs {
    connect_with(endpoint, "timeout=5s&visibility=4s&wait=2s").await
}

pub(crate) async fn connect_with(endpoint: &str, parameters: &str) -> Sqs {
    let url = format!("sqs://key:secret@test?endpoint={endpoint}&prefix={}-&{parameters}", MessageId::new());
    Sqs::connect(Options::from_url(&url).unwrap()).await.unwrap()
}

/// One sender and one consumer. Every message is several calls, so that there are fewer of them on the way than elsewhere.
pub(crate) async fn traffic(sqs: &Sqs) -> Traffic {
    let sqs: Arc<dyn Broker> = Arc::new(sqs.clone());
    let plan = Plan { keys: 10, batch: 50, backlog: 200, ..Plan::default() };
    Traffic::start_with(plan, sqs.clone(), [sqs]).await
}
