//! A server for the tests of one process, and a relay and a consumer in small.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on has failed")]
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use landfall_core::{Broker, GroupName, Key, Message, Outcome, Publisher, Refusal, Subscriber, TopicName};
use landfall_rabbitmq::{Options, RabbitMq};
use landfall_testkit::history::{History, check};
use landfall_testkit::servers::{InUse, RabbitMqOptions, RabbitMqServer, Restartable};
use landfall_testkit::{current_test, eventually};
use tokio::sync::Mutex as AsyncMutex;

pub(crate) const SOON: Duration = Duration::from_secs(60);

static SERVER: Restartable<RabbitMqServer> = Restartable::new();
/// Who kills or pauses the server is alone with it.
pub(crate) static ALONE: AsyncMutex<()> = AsyncMutex::const_new(());

/// What [`server`] takes at most.
pub(crate) const SERVER_BYTES: usize = 1_500_000;

/// The largest piece that it takes at a time.
pub(crate) const SERVER_FRAME: usize = 16_384;

pub(crate) async fn server() -> Option<InUse<RabbitMqServer>> {
    let settings = vec![
        ("max_message_size".to_owned(), SERVER_BYTES.to_string()),
        ("frame_max".to_owned(), SERVER_FRAME.to_string()),
    ];
    let options = RabbitMqOptions { settings };
    SERVER.use_with(async || RabbitMqServer::start_with(&current_test(), options).await).await
}

/// A prefix that nobody else uses.
pub(crate) fn prefix() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test-{}.", NEXT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) async fn connect(url: &str, prefix: &str, parameters: &str) -> RabbitMq {
    let url = format!("{url}?prefix={prefix}&partitions=2&timeout=2&heartbeat=2&{parameters}");
    RabbitMq::connect(Options::from_url(&url).unwrap()).await.unwrap()
}

pub(crate) fn management(server: &RabbitMqServer) -> String {
    format!("management={}", server.management_url().replace(':', "%3A").replace('/', "%2F"))
}

pub(crate) fn orders() -> TopicName {
    TopicName::new("orders").unwrap()
}

pub(crate) fn stock() -> GroupName {
    GroupName::new("stock").unwrap()
}

pub(crate) fn keyed(key: &str, sequence: i64) -> Message {
    Message::new(orders(), format!("{key}/{sequence}")).with_key(Key::new(key).unwrap()).with_sequence(sequence)
}

pub(crate) async fn subscribe(broker: &RabbitMq) -> Box<dyn Subscriber> {
    broker.subscribe(&orders(), &stock()).await.unwrap()
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

/// Messages on their way from a relay to a consumer with an inbox, and what is known about them.
pub(crate) struct Run {
    pub(crate) history: Arc<Mutex<History>>,
    pub(crate) accepted: Arc<AtomicUsize>,
    pub(crate) unknown: Arc<AtomicUsize>,
    pub(crate) effects: Arc<AtomicUsize>,
    relay: tokio::task::JoinHandle<()>,
    consumer: tokio::task::JoinHandle<()>,
    total: usize,
}

impl Run {
    /// Publishes as a relay does: what was not accepted stays in its place and is sent again.
    pub(crate) async fn start(broker: &RabbitMq, keys: i64, each: i64) -> Self {
        let subscriber = subscribe(broker).await;
        Self::with(broker, async || subscriber, keys, each).await
    }

    /// The same, and the group comes while batches are on their way.
    pub(crate) async fn start_before_its_group(broker: &RabbitMq, keys: i64, each: i64) -> Self {
        Self::with(broker, async || subscribe(broker).await, keys, each).await
    }

    async fn with(broker: &RabbitMq, join: impl AsyncFnOnce() -> Box<dyn Subscriber>, keys: i64, each: i64) -> Self {
        let messages: Vec<_> =
            (1..=each).flat_map(|number| (0..keys).map(move |key| keyed(&format!("key-{key}"), number))).collect();
        let total = messages.len();
        let history = Arc::new(Mutex::new(History::new(["stock"])));
        let [accepted, unknown, effects] = std::array::from_fn(|_| Arc::new(AtomicUsize::new(0)));
        let relaying = relay(broker.publisher(), messages, history.clone(), accepted.clone(), unknown.clone());
        let relay = tokio::spawn(relaying);
        let consumer = tokio::spawn(consume(join().await, total, history.clone(), effects.clone()));
        Self { history, accepted, unknown, effects, relay, consumer, total }
    }

    pub(crate) async fn has_accepted(&self, share: f64) {
        let count = (self.total as f64 * share) as usize;
        eventually(SOON, "enough is accepted", async || self.accepted.load(Ordering::SeqCst) >= count).await;
    }

    /// It drains by itself, and nothing is lost, doubled or out of order.
    pub(crate) async fn drains(self) {
        tokio::time::timeout(SOON, self.relay).await.expect("the relay comes to its end").unwrap();
        tokio::time::timeout(SOON, self.consumer).await.expect("the consumer comes to its end").unwrap();
        check(&self.history.lock().unwrap()).assert_clean();
    }
}

async fn relay(
    publisher: Arc<dyn Publisher>,
    mut pending: Vec<Message>,
    history: Arc<Mutex<History>>,
    accepted: Arc<AtomicUsize>,
    unknown: Arc<AtomicUsize>,
) {
    while !pending.is_empty() {
        let count = pending.len().min(100);
        for message in &pending[..count] {
            history.lock().unwrap().invoke(message.id, message.key.clone(), message.sequence);
        }
        let outcomes = publisher.publish(&pending[..count]).await;
        let mut done = HashSet::new();
        for (message, outcome) in pending[..count].iter().zip(&outcomes) {
            let mut history = history.lock().unwrap();
            match outcome {
                Outcome::Accepted(_) => {
                    history.ok(message.id);
                    accepted.fetch_add(1, Ordering::SeqCst);
                    done.insert(message.id);
                }
                Outcome::Refused(refusal) => {
                    assert!(refusal.retriable, "{refusal:?}");
                    history.failed(message.id);
                }
                Outcome::Unknown(_) => {
                    history.unknown(message.id);
                    unknown.fetch_add(1, Ordering::SeqCst);
                }
            }
        }
        let is_stuck = done.is_empty();
        pending.retain(|message| !done.contains(&message.id));
        if is_stuck {
            // A relay backs off.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

async fn consume(
    mut subscriber: Box<dyn Subscriber>,
    total: usize,
    history: Arc<Mutex<History>>,
    effects: Arc<AtomicUsize>,
) {
    let mut inbox = HashSet::new();
    while inbox.len() < total {
        let delivery = subscriber.next().await.unwrap().unwrap();
        let message = delivery.message.as_ref().unwrap();
        if inbox.insert(message.id) {
            history.lock().unwrap().effect("stock", message.id, message.key.clone());
            effects.fetch_add(1, Ordering::SeqCst);
        }
        // What cannot be acknowledged comes again, and the inbox knows it.
        let _ = delivery.ack().await;
    }
}
