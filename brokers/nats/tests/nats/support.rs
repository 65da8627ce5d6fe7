//! One server for all tests that do it no harm, and what they talk to it with.

use std::sync::Arc;
use std::time::Duration;

use landfall_core::Broker;
use landfall_nats::{Nats, Options};
use landfall_testkit::current_test;
use landfall_testkit::servers::{InUse, NatsOptions, NatsServer, Restartable};
use landfall_testkit::traffic::Traffic;

/// Within this a bounded wait must have seen what it waits for.
pub(crate) const SOON: Duration = Duration::from_secs(60);

pub(crate) static SHARED: Restartable<NatsServer> = Restartable::new();

/// The server, for as long as the answer is held. Topics on it have a prefix of their own.
pub(crate) async fn shared() -> Option<InUse<NatsServer>> {
    SHARED.use_with(own).await
}

/// A server that this test may do anything with.
pub(crate) async fn own() -> Option<NatsServer> {
    NatsServer::start(&current_test(), NatsOptions::default()).await
}

pub(crate) async fn connect(url: &str) -> Nats {
    Nats::connect(Options::from_url(url).unwrap()).await.unwrap()
}

/// One sender and one consumer.
pub(crate) async fn traffic(broker: &Nats) -> Traffic {
    let broker: Arc<dyn Broker> = Arc::new(broker.clone());
    Traffic::start(broker.clone(), [broker]).await
}
