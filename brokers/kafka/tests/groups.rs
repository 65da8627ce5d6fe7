//! Members that come, go, fall silent and are too late.

mod support;

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use landfall_core::{Broker, Delivery, GroupName, Message, MessageId, Subscriber};
use landfall_kafka::Kafka;
use landfall_testkit::eventually;
use landfall_testkit::history::{History, check};
use support::traffic::{numbered, orders};
use support::{fresh_prefix, kafka, shared};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const SOON: Duration = Duration::from_secs(60);

async fn broker(parameters: &str) -> Option<Kafka> {
    let server = shared().await?;
    Some(kafka(&format!("{}?prefix={}&session_timeout=6s&{parameters}", server.url().await, fresh_prefix())).await)
}

async fn join(broker: &Kafka) -> Box<dyn Subscriber> {
    broker.subscribe(&orders(), &GroupName::new("stock").unwrap()).await.unwrap()
}

async fn next(subscriber: &mut Box<dyn Subscriber>) -> Delivery {
    tokio::time::timeout(SOON, subscriber.next()).await.expect("a delivery comes").unwrap().unwrap()
}

async fn publish(broker: &Kafka, messages: &[Message]) {
    let outcomes = broker.publisher().publish(messages).await;
    assert!(outcomes.iter().all(landfall_core::Outcome::is_accepted), "{outcomes:?}");
}

/// What every member of a group writes to, as to one database.
#[derive(Clone)]
struct Effects {
    inbox: Arc<Mutex<(HashSet<MessageId>, History)>>,
    count: Arc<AtomicUsize>,
}

impl Effects {
    /// A member that applies what it gets until it is told to leave.
    async fn member(&self, broker: &Kafka) -> (oneshot::Sender<()>, JoinHandle<()>) {
        let (leave, mut told) = oneshot::channel();
        let (mut subscriber, effects) = (join(broker).await, self.clone());
        let member = tokio::spawn(async move {
            loop {
                let delivery = tokio::select! {
                    delivery = subscriber.next() => delivery.unwrap().unwrap(),
                    _ = &mut told => break,
                };
                effects.apply(delivery.message.as_ref().unwrap());
                delivery.ack().await.unwrap();
            }
            subscriber.close().await.unwrap();
        });
        (leave, member)
    }

    fn apply(&self, message: &Message) {
        let mut inbox = self.inbox.lock().unwrap();
        if inbox.0.insert(message.id) {
            inbox.1.effect("stock", message.id, message.key.clone());
            self.count.fetch_add(1, Ordering::SeqCst);
        }
    }

    async fn reach(&self, count: usize) {
        let applied = async || self.count.load(Ordering::SeqCst) >= count;
        eventually(SOON, &format!("{count} effects"), applied).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_that_come_and_go_under_load_leave_nothing_out_and_keep_the_order() {
    let Some(broker) = broker("partitions=6").await else { return };
    let inbox = Arc::new(Mutex::new((HashSet::new(), History::new(["stock"]))));
    let effects = Effects { inbox, count: Arc::default() };
    let (mut number, mut sent) = (0, 0);
    let mut round = async |more: usize| {
        for _ in 0..more {
            number += 1;
            let batch: Vec<_> = (0..20).map(|key| numbered(&format!("key-{key}"), number)).collect();
            for message in &batch {
                effects.inbox.lock().unwrap().1.invoke(message.id, message.key.clone(), message.sequence);
            }
            publish(&broker, &batch).await;
            for message in &batch {
                effects.inbox.lock().unwrap().1.ok(message.id);
            }
            sent += batch.len();
        }
        sent
    };
    round(10).await;
    let one = effects.member(&broker).await;
    effects.reach(100).await;
    let two = effects.member(&broker).await;
    let sent = round(10).await;
    effects.reach(sent).await;
    // One leaves in order, one is gone without a word, and a third takes over.
    one.0.send(()).unwrap();
    round(10).await;
    one.1.await.unwrap();
    let three = effects.member(&broker).await;
    two.1.abort();
    let sent = round(10).await;
    effects.reach(sent).await;
    three.0.send(()).unwrap();
    three.1.await.unwrap();
    check(&effects.inbox.lock().unwrap().1).assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_with_its_hands_full_gets_no_more_and_goes_on_once_it_has_room() {
    let Some(broker) = broker("partitions=1&in_flight=10").await else { return };
    let messages: Vec<_> = (1..=100).map(|number| numbered("a", number)).collect();
    publish(&broker, &messages).await;
    let mut subscriber = join(&broker).await;
    let mut held = Vec::new();
    for _ in 0..10 {
        held.push(next(&mut subscriber).await);
    }
    // Long enough for its partitions to be paused.
    let more = tokio::time::timeout(Duration::from_millis(1_500), subscriber.next()).await;
    assert!(more.is_err(), "ten are the limit: {more:?}");
    let mut numbers = Vec::new();
    for delivery in held {
        numbers.push(delivery.message.as_ref().unwrap().sequence.unwrap());
        delivery.ack().await.unwrap();
    }
    while numbers.len() < 100 {
        let delivery = next(&mut subscriber).await;
        numbers.push(delivery.message.as_ref().unwrap().sequence.unwrap());
        delivery.ack().await.unwrap();
    }
    assert_eq!(numbers, (1..=100).collect::<Vec<_>>());
    subscriber.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledgement_that_comes_too_late_moves_nothing() {
    let Some(broker) = broker("partitions=1").await else { return };
    let messages: Vec<_> = (1..=3).map(|number| numbered("a", number)).collect();
    publish(&broker, &messages).await;
    let mut one = join(&broker).await;
    let late = next(&mut one).await;
    one.close().await.unwrap();
    let mut two = join(&broker).await;
    let first = next(&mut two).await;
    assert_eq!(first.position, late.position, "it came to the next member");
    late.ack().await.unwrap();
    two.close().await.unwrap();
    drop(first);
    let mut three = join(&broker).await;
    for message in &messages {
        let delivery = next(&mut three).await;
        assert_eq!(delivery.message.as_ref().unwrap().id, message.id, "nobody finished it");
        delivery.ack().await.unwrap();
    }
    three.close().await.unwrap();
}
