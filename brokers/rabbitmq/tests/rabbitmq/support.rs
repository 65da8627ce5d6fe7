//! The shared server, and helpers to connect to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use landfall_core::adapter::Subscriber;
use landfall_core::{Broker, Message, Outcome, Refusal};
use landfall_rabbitmq::{Options, RabbitMq};
use landfall_testkit::servers::{ExclusiveGuard, RabbitMqOptions, RabbitMqServer, SharedGuard, SharedServer};
use landfall_testkit::traffic::Traffic;
use landfall_testkit::{current_test, eventually};

pub(crate) use landfall_testkit::traffic::{keyed, orders, stock};

pub(crate) const SOON: Duration = Duration::from_secs(60);

pub(crate) static SHARED: SharedServer<RabbitMqServer> = SharedServer::new();

/// The server's limit of the size of a message.
pub(crate) const SERVER_BYTES: usize = 1_500_000;

/// The server's limit of the size of a frame.
pub(crate) const SERVER_FRAME: usize = 16_384;

async fn start() -> Option<RabbitMqServer> {
    let settings = vec![
        ("max_message_size".to_owned(), SERVER_BYTES.to_string()),
        ("frame_max".to_owned(), SERVER_FRAME.to_string()),
    ];
    RabbitMqServer::start_with(&current_test(), RabbitMqOptions { settings }).await
}

/// The shared server, in use until the returned guard is dropped.
pub(crate) async fn shared() -> Option<SharedGuard<RabbitMqServer>> {
    SHARED.shared_with(start).await
}

/// Exclusive use of the server, for tests that kill, pause or fill it.
pub(crate) async fn exclusive() -> Option<ExclusiveGuard<RabbitMqServer>> {
    SHARED.exclusive_with(start).await
}

/// A prefix that no other test uses.
pub(crate) fn prefix() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test-{}.", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Connects with long timeouts: the first call creates exchanges, queues and bindings one by one.
pub(crate) async fn connect(url: &str, prefix: &str, parameters: &str) -> RabbitMq {
    connect_with(url, prefix, &format!("timeout=20&heartbeat=10&{parameters}")).await
}

pub(crate) async fn connect_with(url: &str, prefix: &str, parameters: &str) -> RabbitMq {
    connect_to(&format!("{url}?prefix={prefix}&partitions=2&{parameters}")).await
}

/// Connects with retries: a server that has just restarted may be slow to answer.
pub(crate) async fn connect_to(url: &str) -> RabbitMq {
    let options = Options::from_url(url).unwrap();
    let connecting = async {
        loop {
            match RabbitMq::connect(options.clone()).await {
                Ok(broker) => return broker,
                Err(error) => assert!(error.is_temporary(), "cannot connect: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(SOON, connecting).await.expect("the client connects in time")
}

pub(crate) fn management(server: &RabbitMqServer) -> String {
    format!("management={}", server.management_url().replace(':', "%3A").replace('/', "%2F"))
}

pub(crate) async fn subscribe(broker: &RabbitMq) -> Box<dyn Subscriber> {
    let mut subscriber = None;
    eventually(SOON, "the subscriber joins the group", async || {
        match broker.subscribe(&orders(), &stock()).await {
            Ok(joined) => subscriber = Some(joined),
            Err(error) => assert!(error.is_temporary(), "cannot join the group: {error}"),
        }
        subscriber.is_some()
    })
    .await;
    subscriber.unwrap()
}

/// Creates the group without members. Does not wait for a server that is slow to close the subscription.
pub(crate) async fn create_group(broker: &RabbitMq) {
    if let Err(error) = subscribe(broker).await.close().await {
        assert!(error.is_temporary(), "cannot leave the group: {error}");
    }
}

pub(crate) async fn next(subscriber: &mut Box<dyn Subscriber>) -> Message {
    let delivery = tokio::time::timeout(SOON, subscriber.next()).await.expect("a delivery arrives in time");
    let (message, _, acknowledge) = delivery.unwrap().unwrap().into_parts();
    acknowledge.ack().await.unwrap();
    message.unwrap()
}

pub(crate) async fn publish_one(broker: &RabbitMq, message: &Message) -> Outcome {
    broker.publisher().publish(std::slice::from_ref(message)).await.remove(0)
}

pub(crate) fn refusal(outcome: &Outcome) -> &Refusal {
    match outcome {
        Outcome::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    }
}

/// Waits until the server has persisted its queues, so that they survive a crash.
pub(crate) async fn wait_for_persisted_queues(server: &RabbitMqServer, prefix: &str) {
    for partition in 0..2 {
        let queue = format!("{prefix}orders:stock:{partition}");
        eventually(SOON, "the server persists its queues", async || server.remembers_queue(&queue).await).await;
    }
}

/// One publisher and one consumer.
pub(crate) async fn traffic(broker: &RabbitMq) -> Traffic {
    let broker: Arc<dyn Broker> = Arc::new(broker.clone());
    Traffic::start(broker.clone(), [broker]).await
}
