//! Outcomes of single messages after failures.

use landfall_core::{Broker, ErrorCode, ErrorKind, Message, Outcome, StartAt, TopicAdministration, TopicName};
use landfall_testkit::eventually;
use landfall_testkit::proxy::{CutPoint, Trigger};
use landfall_testkit::traffic::{assert_keys_wait, keyed, orders};
use rdkafka::admin::{AdminOptions, AlterConfig, NewTopic, ResourceSpecifier, TopicReplication};

use crate::support::{SOON, administrator, fresh_prefix, kafka, shared};

#[tokio::test(flavor = "multi_thread")]
async fn lost_answer_causes_no_duplicate() {
    let Some(server) = shared().await else { return };
    let (proxy, url) = (server.proxy().await, server.impatient_url().await);
    let broker = kafka(&proxy.url(&url)).await;
    let messages: Vec<_> = (1..=3).map(|number| keyed("a", number)).collect();
    assert!(broker.publisher().publish(&messages[..1]).await[0].is_accepted());
    proxy.cut_next(Trigger::word("a/2"), CutPoint::BeforeResponse);
    let outcomes = broker.publisher().publish(&messages[1..]).await;
    assert!(outcomes.iter().all(Outcome::is_accepted), "the producer retried: {outcomes:?}");
    assert_eq!(proxy.counts().cut_before_response, 1);

    let mut reader = kafka(&url).await.read(&orders(), StartAt::Beginning).await.unwrap();
    let stored = reader.read(10).await.unwrap();
    let stored: Vec<_> = stored.into_iter().map(|stored| stored.message.unwrap().id).collect();
    assert_eq!(stored, messages.iter().map(|message| message.id).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn unanswered_is_unknown_and_unsent_is_refused() {
    let Some(server) = shared().await else { return };
    let (proxy, url) = (server.proxy().await, server.impatient_url().await);
    let broker = kafka(&proxy.url(&url)).await;
    let messages: Vec<_> = (1..=4).map(|number| keyed("a", number)).collect();
    assert!(broker.publisher().publish(&messages[..1]).await[0].is_accepted());

    proxy.cut_next(Trigger::word("a/2"), CutPoint::BeforeResponse);
    proxy.refuse();
    let outcomes = broker.publisher().publish(&messages[1..3]).await;
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Unknown(_))), "{outcomes:?}");
    let outcomes = broker.publisher().publish(&messages[1..]).await;
    for outcome in &outcomes {
        let Outcome::Refused(refusal) = outcome else { panic!("{outcomes:?}") };
        assert_eq!((&refusal.code, refusal.retriable), (&ErrorCode::UNAVAILABLE, true), "{refusal:?}");
    }
    proxy.heal();
    let healed = async || {
        let outcomes = broker.publisher().publish(&messages[1..]).await;
        outcomes.iter().all(Outcome::is_accepted)
    };
    eventually(SOON, "the messages are accepted after recovery", healed).await;
    let mut reader = kafka(&url).await.read(&orders(), StartAt::Beginning).await.unwrap();
    let mut first_seen = Vec::new();
    for stored in reader.read(20).await.unwrap() {
        let number = stored.message.unwrap().sequence.unwrap();
        if !first_seen.contains(&number) {
            first_seen.push(number);
        }
    }
    assert_eq!(first_seen, [1, 2, 3, 4], "duplicates follow their originals");
}

#[tokio::test(flavor = "multi_thread")]
async fn topic_size_limit_applies_to_single_messages() {
    let Some(server) = shared().await else { return };
    let url = server.impatient_url().await;
    let prefix = url.rsplit_once("prefix=").unwrap().1;
    let admin = administrator(&server.address());
    let name = format!("{prefix}orders");
    let small = NewTopic::new(&name, 1, TopicReplication::Fixed(1)).set("max.message.bytes", "10000");
    admin.create_topics([&small], &AdminOptions::new()).await.unwrap().remove(0).unwrap();

    let broker = kafka(&url).await;
    // The batch is many times larger than the topic's limit of one request.
    let mut batch: Vec<_> = (1..=100).map(|number| keyed(&format!("key-{}", number % 3), number)).collect();
    batch.iter_mut().for_each(|message| message.payload = vec![b'x'; 5_000].into());
    batch[10].payload = vec![b'x'; 10_000].into();
    let large_key = batch[10].key.clone();
    let outcomes = broker.publisher().publish(&batch).await;
    assert_keys_wait(&batch, &outcomes);
    for (index, (message, outcome)) in batch.iter().zip(&outcomes).enumerate() {
        match outcome {
            Outcome::Refused(refusal) if index == 10 => {
                assert_eq!((&refusal.code, refusal.retriable), (&ErrorCode::TOO_LARGE, false));
            }
            Outcome::Refused(refusal) => {
                assert!(message.key == large_key && index > 10, "{index}: {refusal:?}");
                assert_eq!(refusal.code, ErrorCode::PREDECESSOR);
            }
            outcome => assert!(outcome.is_accepted(), "{index}: {outcome:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn permanent_refusal_holds_back_its_key() {
    let Some(server) = shared().await else { return };
    let url = server.impatient_url().await.replace("partitions=4", "partitions=1&linger=0&message_bytes=4000");
    let name = format!("{}orders", url.rsplit_once("prefix=").unwrap().1);
    let broker = kafka(&url).await;
    let publisher = broker.publisher();
    assert!(publisher.publish(&[keyed("a", 0)]).await[0].is_accepted());
    // A compacted topic refuses messages without a key. Only the cluster knows that.
    let admin = administrator(&server.address());
    let compacted = AlterConfig::new(ResourceSpecifier::Topic(&name)).set("cleanup.policy", "compact");
    admin.alter_configs([&compacted], &AdminOptions::new()).await.unwrap().remove(0).unwrap();
    let keyless = || Message::new(orders(), "without a key");
    let refuses = async || !publisher.publish(&[keyless()]).await[0].is_accepted();
    eventually(SOON, "the topic is compacted", refuses).await;

    // Many requests, several of them in flight when the cluster refuses one in the middle.
    let mut batch: Vec<_> = (1..=300).map(|number| keyed("a", number)).collect();
    batch.insert(100, keyless());
    let outcomes = publisher.publish(&batch).await;
    assert_keys_wait(&batch, &outcomes);
    let Outcome::Refused(refusal) = &outcomes[100] else { panic!("{:?}", outcomes[100]) };
    assert_eq!((&refusal.code, refusal.retriable), (&ErrorCode::VALIDATION, false), "{refusal:?}");
    assert!(!outcomes[300].is_accepted(), "later messages of the partition are held back");
    // Publishing then continues in order.
    let rest: Vec<_> = batch.iter().zip(&outcomes).filter(|(_, outcome)| !outcome.is_accepted()).collect();
    let rest: Vec<_> = rest.into_iter().map(|(message, _)| message.clone()).filter(|rest| rest.key.is_some()).collect();
    let sent = async || publisher.publish(&rest).await.iter().all(Outcome::is_accepted);
    eventually(SOON, "the rest is accepted", sent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn created_topic_has_the_settings_of_the_url() {
    let Some(server) = shared().await else { return };
    let prefix = fresh_prefix();
    let settings = "partitions=3&retention=2h&flush_messages=500&flush_interval=20ms";
    let broker = kafka(&format!("{}?{settings}&prefix={prefix}", server.url().await)).await;
    assert!(broker.create_topic(&orders(), None).await.unwrap());
    let name = format!("{prefix}orders");
    let admin = administrator(&server.address());
    let found = admin.describe_configs([&ResourceSpecifier::Topic(&name)], &AdminOptions::new()).await.unwrap();
    let found = found.into_iter().next().unwrap().unwrap();
    let value = |setting: &str| found.get(setting).and_then(|entry| entry.value.clone()).unwrap_or_default();
    let expected = ["7200000", "500", "20"];
    assert_eq!(["retention.ms", "flush.messages", "flush.ms"].map(value), expected);
}

/// The controller answers before the metadata reaches the nodes.
#[tokio::test(flavor = "multi_thread")]
async fn created_topic_is_visible_to_other_clients_at_once() {
    let Some(server) = shared().await else { return };
    let url = format!("{}?prefix={}", server.url().await, fresh_prefix());
    let (creator, other) = (kafka(&url).await, kafka(&url).await);
    for number in 0..40 {
        let topic = TopicName::new(format!("orders-{number}")).unwrap();
        assert!(creator.create_topic(&topic, Some(1)).await.unwrap());
        let broker = if number % 2 == 0 { &creator } else { &other };
        assert_eq!(broker.create_topic(&topic, Some(2)).await.unwrap_err().kind(), ErrorKind::Conflict, "{topic}");
        assert!(!broker.create_topic(&topic, Some(1)).await.unwrap(), "{topic}");
    }
}

/// A node reports a new topic before its partitions have leaders that answer.
#[tokio::test(flavor = "multi_thread")]
async fn new_topic_is_listed_while_its_leaders_are_elected() {
    let Some(server) = shared().await else { return };
    let url = format!("{}?prefix={}", server.url().await, fresh_prefix());
    let (creator, other) = (kafka(&url).await, kafka(&url).await);
    for number in 0..10 {
        let topic = TopicName::new(format!("orders-{number}")).unwrap();
        let listed = async {
            eventually(SOON, "the topic is listed", async || {
                other.topics().await.unwrap().iter().any(|listed| listed.topic == topic && listed.partitions == 32)
            })
            .await;
        };
        let (created, ()) = tokio::join!(creator.create_topic(&topic, Some(32)), listed);
        assert!(created.unwrap());
    }
}
