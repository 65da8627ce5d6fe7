//! One server for all tests, and what they talk to it with.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use landfall_core::{Broker, Message, Outcome, Refusal, Subscriber};
use landfall_rabbitmq::{Options, RabbitMq};
use landfall_testkit::servers::{Alone, InUse, RabbitMqOptions, RabbitMqServer, Restartable};
use landfall_testkit::traffic::Traffic;
use landfall_testkit::{current_test, eventually};

pub(crate) use landfall_testkit::traffic::{keyed, orders, stock};

pub(crate) const SOON: Duration = Duration::from_secs(60);

pub(crate) static SHARED: Restartable<RabbitMqServer> = Restartable::new();

/// What the server takes at most.
pub(crate) const SERVER_BYTES: usize = 1_500_000;

/// The largest piece that it takes at a time.
pub(crate) const SERVER_FRAME: usize = 16_384;

async fn start() -> Option<RabbitMqServer> {
    let settings = vec![
        ("max_message_size".to_owned(), SERVER_BYTES.to_string()),
        ("frame_max".to_owned(), SERVER_FRAME.to_string()),
    ];
    RabbitMqServer::start_with(&current_test(), RabbitMqOptions { settings }).await
}

/// The server, for as long as the answer is held.
pub(crate) async fn shared() -> Option<InUse<RabbitMqServer>> {
    SHARED.use_with(start).await
}

/// The server for one who kills or pauses it, or lets it run out of room.
pub(crate) async fn alone() -> Option<Alone<RabbitMqServer>> {
    SHARED.alone_with(start).await
}

/// A prefix that nobody else uses.
pub(crate) fn prefix() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test-{}.", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Patient: the first call makes exchanges, queues and bindings, one after the other.
pub(crate) async fn connect(url: &str, prefix: &str, parameters: &str) -> RabbitMq {
    connect_with(url, prefix, &format!("timeout=20&heartbeat=10&{parameters}")).await
}

pub(crate) async fn connect_with(url: &str, prefix: &str, parameters: &str) -> RabbitMq {
    connect_to(&format!("{url}?prefix={prefix}&partitions=2&{parameters}")).await
}

/// Patient: a server that has just come back may be slow to answer.
pub(crate) async fn connect_to(url: &str) -> RabbitMq {
    let options = Options::from_url(url).unwrap();
    let connecting = async {
        loop {
            match RabbitMq::connect(options.clone()).await {
                Ok(broker) => return broker,
                Err(error) => assert!(error.is_temporary(), "it cannot connect: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(SOON, connecting).await.expect("it connects soon")
}

pub(crate) fn management(server: &RabbitMqServer) -> String {
    format!("management={}", server.management_url().replace(':', "%3A").replace('/', "%2F"))
}

pub(crate) async fn subscribe(broker: &RabbitMq) -> Box<dyn Subscriber> {
    let mut subscriber = None;
    eventually(SOON, "it joins the group", async || {
        match broker.subscribe(&orders(), &stock()).await {
            Ok(joined) => subscriber = Some(joined),
            Err(error) => assert!(error.is_temporary(), "it cannot join the group: {error}"),
        }
        subscriber.is_some()
    })
    .await;
    subscriber.unwrap()
}

/// The group is there afterwards, and nobody is in it. A server that is slow to say goodbye is not waited for.
pub(crate) async fn make_group(broker: &RabbitMq) {
    if let Err(error) = subscribe(broker).await.close().await {
        assert!(error.is_temporary(), "the group cannot be left: {error}");
    }
}

pub(crate) async fn next(subscriber: &mut Box<dyn Subscriber>) -> Message {
    let delivery = tokio::time::timeout(SOON, subscriber.next()).await.expect("a delivery comes soon");
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

/// Waits until the server would find its queues again after a crash.
pub(crate) async fn queues_are_written_down(server: &RabbitMqServer, prefix: &str) {
    for partition in 0..2 {
        let queue = format!("{prefix}orders:stock:{partition}");
        eventually(SOON, "the server writes down its queues", async || server.remembers_queue(&queue).await).await;
    }
}

/// One sender and one consumer.
pub(crate) async fn traffic(broker: &RabbitMq) -> Traffic {
    let broker: Arc<dyn Broker> = Arc::new(broker.clone());
    Traffic::start(broker.clone(), [broker]).await
}
