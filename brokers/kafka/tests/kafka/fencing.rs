//! A relay that was paused in the middle and whose shards somebody else has taken over: the cluster silences it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use landfall_core::{Broker, ErrorCode, FencedPublisher, Holder, Message, MessageId, Outcome, Publisher, StartAt};
use landfall_kafka::Kafka;
use landfall_testkit::eventually;
use landfall_testkit::servers::InUse;
use landfall_testkit::traffic::{keyed, orders};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

use crate::support::{SOON, Shared, fresh_prefix, kafka, shared};

/// A broker of its own, as every process has one, and the address and prefix that they share.
struct Stage {
    _server: InUse<Shared>,
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

    /// What a relay of this name publishes through.
    async fn relay(&self, holder: &str) -> Arc<dyn FencedPublisher> {
        let publisher = self.broker("fencing=true").await.publisher();
        publisher.fenced(&Holder(holder.into())).expect("fencing=true")
    }

    /// Where the topic ends for whoever reads like that.
    async fn end(&self, isolation: &str) -> i64 {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.address).set("isolation.level", isolation);
        let topic = format!("{}{}", self.prefix, orders());
        let asked = tokio::task::spawn_blocking(move || {
            let consumer: BaseConsumer = config.create().unwrap();
            consumer.fetch_watermarks(&topic, 0, SOON).unwrap().1
        });
        asked.await.unwrap()
    }

    /// A transaction counts once it is noted, and the marks that let readers past its messages follow. They are waited
    /// for.
    async fn stored(&self) -> Vec<MessageId> {
        eventually(SOON, "the marks of all transactions are there", async || {
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
async fn what_a_paused_relay_had_in_hand_never_enters_and_it_goes_on_after_it_has_begun_anew() {
    let Some(stage) = Stage::new().await else { return };
    let (paused, other) = (stage.relay("paused").await, stage.relay("other").await);
    paused.begin().await.unwrap();
    let (first, taken_over) = (batch(0), batch(20));
    accept(&*paused, &first).await;

    // It has read the next rows and looked at its leases, and there it stops.
    other.begin().await.unwrap();
    other.fence(&Holder("paused".into())).await.unwrap();
    accept(&*other, &taken_over).await;
    let outcomes = paused.publish(&taken_over).await;
    assert!(outcomes.iter().all(is_fenced), "{outcomes:?}");
    let again = paused.publish(&taken_over).await;
    assert!(!again.iter().any(Outcome::is_accepted), "not before it has begun anew: {again:?}");

    paused.begin().await.unwrap();
    let last = batch(40);
    accept(&*paused, &last).await;
    assert_eq!(stage.stored().await, [ids(&first), ids(&taken_over), ids(&last)].concat());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_sent_and_not_committed_is_never_read() {
    let Some(stage) = Stage::new().await else { return };
    let other = stage.relay("other").await;
    other.begin().await.unwrap();
    let first = batch(0);
    accept(&*other, &first).await;

    // A relay whose messages are on the nodes and whose commit is still to come: only a client by hand stops there.
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
    assert!(committed.is_err(), "it was silenced");
    // It would be no message, and reading it would fail.
    assert_eq!(stage.stored().await, [ids(&first), ids(&second)].concat());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_is_silenced_at_any_moment_has_said_the_truth_about_what_it_sent() {
    let Some(stage) = Stage::new().await else { return };
    let (silenced, other) = (stage.relay("silenced").await, stage.relay("other").await);
    silenced.begin().await.unwrap();
    other.begin().await.unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    let sending = tokio::spawn({
        let sent = sent.clone();
        async move {
            let mut accepted = Vec::new();
            loop {
                let batch = batch(accepted.len() as i64);
                let outcomes = silenced.publish(&batch).await;
                if !outcomes.iter().all(Outcome::is_accepted) {
                    return (accepted, ids(&batch), outcomes);
                }
                accepted.extend(ids(&batch));
                sent.store(accepted.len(), Ordering::SeqCst);
            }
        }
    });
    eventually(SOON, "it sends", async || sent.load(Ordering::SeqCst) >= 200).await;
    other.fence(&Holder("silenced".into())).await.unwrap();
    let mark = batch(0);
    accept(&*other, &mark).await;
    let (accepted, last, outcomes) = tokio::time::timeout(SOON, sending).await.expect("it stops").unwrap();
    assert!(!outcomes.iter().any(Outcome::is_accepted), "all of a batch or nothing: {outcomes:?}");

    let stored = stage.stored().await;
    // Of the last batch all may be there if its outcome is unknown, and nothing may if it was refused.
    let unknown = outcomes.iter().all(|outcome| matches!(outcome, Outcome::Unknown(_)));
    let with_last = [accepted.clone(), last, ids(&mark)].concat();
    let expected = if unknown && stored.len() == with_last.len() { with_last } else { [accepted, ids(&mark)].concat() };
    assert_eq!(stored, expected, "nothing behind the mark, and nothing that was refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_refused_takes_only_itself_out_of_the_batch() {
    let Some(stage) = Stage::new().await else { return };
    let relay = stage.relay("relay").await;
    relay.begin().await.unwrap();
    let too_large = Message::new(orders(), vec![0; 3 * 1024 * 1024]);
    let good = batch(0);
    let outcomes = relay.publish(&[good.clone(), vec![too_large]].concat()).await;
    assert!(outcomes[..20].iter().all(Outcome::is_accepted), "{outcomes:?}");
    assert!(matches!(&outcomes[20], Outcome::Refused(refusal) if refusal.code == ErrorCode::TOO_LARGE));
    assert_eq!(stage.stored().await, ids(&good));
    assert!(stage.broker("").await.publisher().fenced(&Holder("relay".into())).is_none(), "only where it is asked for");
}
