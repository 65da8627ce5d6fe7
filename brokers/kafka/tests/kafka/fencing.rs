//! The cluster fences a relay that was paused while publishing and whose shards another relay has taken over.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use landfall_core::adapter::FencedPublisher;
use landfall_core::{Broker, ErrorCode, Holder, Message, MessageId, Outcome, Publisher, StartAt};
use landfall_kafka::Kafka;
use landfall_testkit::eventually;
use landfall_testkit::servers::SharedGuard;
use landfall_testkit::traffic::{keyed, orders};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

use crate::support::{SOON, Shared, fresh_prefix, kafka, shared};

/// The address and prefix that several brokers share. Each relay has its own broker, as separate processes do.
struct Stage {
    _server: SharedGuard<Shared>,
    address: String,
    prefix: String,
}

impl Stage {
    async fn new() -> Option<Self> {
        let server = shared().await?;
        Some(Self { address: server.address(), prefix: fresh_prefix(), _server: server })
    }

    async fn broker(&self, parameters: &str) -> Kafka {
        kafka(&format!("kafka://{}?prefix={}&partitions=1&{parameters}", self.address, self.prefix)).await
    }

    /// The publisher of a relay with this name.
    async fn relay(&self, holder: &str) -> Arc<dyn FencedPublisher> {
        let publisher = self.broker("fencing=true").await.publisher();
        publisher.fenced(&Holder(holder.into())).expect("fencing=true")
    }

    /// The end of the topic as a consumer with this isolation level sees it.
    async fn end(&self, isolation: &str) -> i64 {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.address).set("isolation.level", isolation);
        let topic = format!("{}{}", self.prefix, orders());
        let end = tokio::task::spawn_blocking(move || {
            let consumer: BaseConsumer = config.create().unwrap();
            consumer.fetch_watermarks(&topic, 0, SOON).unwrap().1
        });
        end.await.unwrap()
    }

    /// Returns the ids of all committed messages. Waits for the control records of all transactions first. The cluster
    /// writes them after the commit returns, and readers stop in front of a transaction without one.
    async fn stored(&self) -> Vec<MessageId> {
        eventually(SOON, "all transactions have their control records", async || {
            self.end("read_uncommitted").await == self.end("read_committed").await
        })
        .await;
        let broker = self.broker("").await;
        let mut reader = broker.read(&orders(), StartAt::Beginning).await.unwrap();
        let mut stored = Vec::new();
        loop {
            let more = reader.read(1000).await.unwrap();
            if more.is_empty() {
                return stored;
            }
            stored.extend(more.into_iter().map(|stored| stored.message.unwrap().id));
        }
    }
}

fn ids(messages: &[Message]) -> Vec<MessageId> {
    messages.iter().map(|message| message.id).collect()
}

fn batch(first: i64) -> Vec<Message> {
    (first..first + 20).map(|number| keyed("a", number)).collect()
}

fn is_fenced(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Refused(refusal) if refusal.code == ErrorCode::FENCED && refusal.retriable)
}

async fn accept(relay: &dyn Publisher, messages: &[Message]) {
    let outcomes = relay.publish(messages).await;
    assert!(outcomes.iter().all(Outcome::is_accepted), "{outcomes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn fenced_relay_cannot_publish_until_it_begins_again() {
    let Some(stage) = Stage::new().await else { return };
    let (paused, other) = (stage.relay("paused").await, stage.relay("other").await);
    paused.begin().await.unwrap();
    let (first, taken_over) = (batch(0), batch(20));
    accept(&*paused, &first).await;

    // The relay has read the next rows and checked its leases, and is paused there.
    other.begin().await.unwrap();
    other.fence(&Holder("paused".into())).await.unwrap();
    accept(&*other, &taken_over).await;
    let outcomes = paused.publish(&taken_over).await;
    assert!(outcomes.iter().all(is_fenced), "{outcomes:?}");
    let again = paused.publish(&taken_over).await;
    assert!(!again.iter().any(Outcome::is_accepted), "refused until it begins again: {again:?}");

    paused.begin().await.unwrap();
    let last = batch(40);
    accept(&*paused, &last).await;
    assert_eq!(stage.stored().await, [ids(&first), ids(&taken_over), ids(&last)].concat());
}

#[tokio::test(flavor = "multi_thread")]
async fn uncommitted_messages_of_a_fenced_relay_are_never_read() {
    let Some(stage) = Stage::new().await else { return };
    let other = stage.relay("other").await;
    other.begin().await.unwrap();
    let first = batch(0);
    accept(&*other, &first).await;

    // A relay whose messages are stored but not committed. Only a raw client can stop at this point.
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", &stage.address).set("transactional.id", format!("{}landfall-paused", stage.prefix));
    let paused: Arc<BaseProducer> = Arc::new(config.create().unwrap());
    let (topic, payload) = (format!("{}{}", stage.prefix, orders()), "left behind");
    let sent = tokio::task::spawn_blocking({
        let paused = paused.clone();
        move || {
            paused.init_transactions(SOON).unwrap();
            paused.begin_transaction().unwrap();
            paused.send(BaseRecord::<str, str>::to(&topic).key("a").payload(payload)).unwrap();
            paused.flush(SOON).unwrap();
        }
    });
    sent.await.unwrap();

    other.fence(&Holder("paused".into())).await.unwrap();
    let second = batch(20);
    accept(&*other, &second).await;
    let committed = tokio::task::spawn_blocking(move || paused.commit_transaction(SOON)).await.unwrap();
    assert!(committed.is_err(), "the producer was fenced");
    // `stored` would fail on the uncommitted record, because it is not a message.
    assert_eq!(stage.stored().await, [ids(&first), ids(&second)].concat());
}

#[tokio::test(flavor = "multi_thread")]
async fn relay_fenced_at_any_moment_reports_correct_outcomes() {
    let Some(stage) = Stage::new().await else { return };
    let (fenced, other) = (stage.relay("fenced").await, stage.relay("other").await);
    fenced.begin().await.unwrap();
    other.begin().await.unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    let sending = tokio::spawn({
        let sent = sent.clone();
        async move {
            let mut accepted = Vec::new();
            loop {
                let batch = batch(accepted.len() as i64);
                let outcomes = fenced.publish(&batch).await;
                if !outcomes.iter().all(Outcome::is_accepted) {
                    return (accepted, ids(&batch), outcomes);
                }
                accepted.extend(ids(&batch));
                sent.store(accepted.len(), Ordering::SeqCst);
            }
        }
    });
    eventually(SOON, "the relay publishes", async || sent.load(Ordering::SeqCst) >= 200).await;
    other.fence(&Holder("fenced".into())).await.unwrap();
    let after_fence = batch(0);
    accept(&*other, &after_fence).await;
    let (accepted, last, outcomes) =
        tokio::time::timeout(SOON, sending).await.expect("the fenced relay stops").unwrap();
    assert!(!outcomes.iter().any(Outcome::is_accepted), "a batch is accepted whole or not at all: {outcomes:?}");

    let stored = stage.stored().await;
    // The last batch may be stored completely if its outcome is unknown, and must be absent if it was refused.
    let unknown = outcomes.iter().all(|outcome| matches!(outcome, Outcome::Unknown(_)));
    let with_last = [accepted.clone(), last, ids(&after_fence)].concat();
    let without_last = [accepted, ids(&after_fence)].concat();
    let expected = if unknown && stored.len() == with_last.len() { with_last } else { without_last };
    assert_eq!(stored, expected, "nothing follows the fence, and no refused message is stored");
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_message_does_not_fail_its_batch() {
    let Some(stage) = Stage::new().await else { return };
    let relay = stage.relay("relay").await;
    relay.begin().await.unwrap();
    let too_large = Message::new(orders(), vec![0; 3 * 1024 * 1024]);
    let good = batch(0);
    let outcomes = relay.publish(&[good.clone(), vec![too_large]].concat()).await;
    assert!(outcomes[..20].iter().all(Outcome::is_accepted), "{outcomes:?}");
    assert!(matches!(&outcomes[20], Outcome::Refused(refusal) if refusal.code == ErrorCode::TOO_LARGE));
    assert_eq!(stage.stored().await, ids(&good));
    assert!(
        stage.broker("").await.publisher().fenced(&Holder("relay".into())).is_none(),
        "fencing is off without fencing=true"
    );
}
