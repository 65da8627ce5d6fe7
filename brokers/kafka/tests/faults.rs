//! A node that is killed, paused and cut off under load: nothing is lost, doubled or reordered, and it drains by itself.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod support;

use std::net::SocketAddr;
use std::time::Duration;

use landfall_core::{Broker, ErrorCode, Outcome, StartAt};
use landfall_testkit::proxy::{Moment, Proxy, Trigger};
use landfall_testkit::servers::{KafkaOptions, KafkaServer};
use landfall_testkit::{current_test, eventually};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, AlterConfig, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use support::traffic::{Traffic, assert_rule, numbered, orders};
use support::{fresh_prefix, kafka};
use tokio::sync::{Mutex, OnceCell};

/// One node behind a proxy, for one test at a time.
struct Ground {
    server: KafkaServer,
    listening: u16,
    proxy_port: u16,
}

static GROUND: OnceCell<Option<Mutex<Ground>>> = OnceCell::const_new();

async fn ground() -> Option<&'static Mutex<Ground>> {
    let start = async || {
        let (listening, proxy_port) = (KafkaServer::free_port().unwrap(), KafkaServer::free_port().unwrap());
        let options = KafkaOptions { proxied: Some((listening, proxy_port)), ..KafkaOptions::default() };
        let server = KafkaServer::start(&current_test(), options).await?;
        Some(Mutex::new(Ground { server, listening, proxy_port }))
    };
    GROUND.get_or_init(start).await.as_ref()
}

impl Ground {
    /// Impatient, so that an outage of seconds is long.
    async fn url(&self) -> String {
        let options = "partitions=4&timeout=3s&connect_timeout=1s&session_timeout=6s";
        format!("{}?{options}&prefix={}", self.server.url().await, fresh_prefix())
    }

    /// The test before may still be letting go of the port.
    async fn proxy(&self) -> Proxy {
        let server = SocketAddr::from(([127, 0, 0, 1], self.listening));
        let mut proxy = None;
        let started = async || {
            proxy = Proxy::start_on(self.proxy_port, server).await.ok();
            proxy.is_some()
        };
        eventually(Duration::from_secs(10), "the proxy's port is free", started).await;
        proxy.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_killed_and_restarted_under_load_loses_nothing() {
    let Some(ground) = ground().await else { return };
    let ground = ground.lock().await;
    let url = ground.url().await;
    let traffic = Traffic::start(kafka(&url).await, kafka(&url).await).await;
    traffic.flows(500).await;
    ground.server.kill_9().await.unwrap();
    traffic.suffers(Some(ErrorCode::UNAVAILABLE)).await;
    ground.server.restart().await.unwrap();
    traffic.flows(500).await;
    // And once without waiting for anybody to notice.
    ground.server.restart().await.unwrap();
    traffic.flows(500).await;
    traffic.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_paused_past_all_timeouts_under_load_loses_nothing() {
    let Some(ground) = ground().await else { return };
    let ground = ground.lock().await;
    let url = ground.url().await;
    let traffic = Traffic::start(kafka(&url).await, kafka(&url).await).await;
    traffic.flows(500).await;
    ground.server.pause().await.unwrap();
    // First nobody knows about what was sent, then nothing is sent any more.
    traffic.suffers(None).await;
    traffic.suffers(Some(ErrorCode::UNAVAILABLE)).await;
    ground.server.resume().await.unwrap();
    traffic.flows(500).await;
    traffic.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_cut_again_and_again_lose_and_double_nothing() {
    let Some(ground) = ground().await else { return };
    let ground = ground.lock().await;
    let (proxy, url) = (ground.proxy().await, ground.url().await);
    let behind = proxy.url(&url);
    let traffic = Traffic::start(kafka(&behind).await, kafka(&behind).await).await;
    traffic.flows(300).await;
    for moment in [Moment::BeforeTheAnswer, Moment::BeforeForwarding, Moment::BeforeTheAnswer] {
        // Every batch has messages of this key in it.
        proxy.cut_next(Trigger::word("key-7"), moment);
        traffic.flows(300).await;
        proxy.cut_all();
        traffic.flows(300).await;
    }
    let counts = proxy.counts();
    assert!(counts.cut_before_the_answer >= 2 && counts.cut_before_forwarding >= 1, "{counts:?}");
    traffic.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_lost_stores_nothing_twice() {
    let Some(ground) = ground().await else { return };
    let ground = ground.lock().await;
    let (proxy, url) = (ground.proxy().await, ground.url().await);
    let broker = kafka(&proxy.url(&url)).await;
    let messages: Vec<_> = (1..=3).map(|number| numbered("a", number)).collect();
    assert!(broker.publisher().publish(&messages[..1]).await[0].is_accepted());
    proxy.cut_next(Trigger::word("a/2"), Moment::BeforeTheAnswer);
    let outcomes = broker.publisher().publish(&messages[1..]).await;
    assert!(outcomes.iter().all(Outcome::is_accepted), "it was asked again: {outcomes:?}");
    assert_eq!(proxy.counts().cut_before_the_answer, 1);

    let mut reader = kafka(&url).await.read(&orders(), StartAt::Beginning).await.unwrap();
    let stored = reader.read(10).await.unwrap();
    let stored: Vec<_> = stored.into_iter().map(|stored| stored.message.unwrap().id).collect();
    assert_eq!(stored, messages.iter().map(|message| message.id).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_sent_into_silence_is_unknown_and_what_was_not_sent_is_refused() {
    let Some(ground) = ground().await else { return };
    let ground = ground.lock().await;
    let (proxy, url) = (ground.proxy().await, ground.url().await);
    let broker = kafka(&proxy.url(&url)).await;
    let messages: Vec<_> = (1..=4).map(|number| numbered("a", number)).collect();
    assert!(broker.publisher().publish(&messages[..1]).await[0].is_accepted());

    proxy.cut_next(Trigger::word("a/2"), Moment::BeforeTheAnswer);
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
    eventually(Duration::from_secs(20), "it is accepted after all", healed).await;
    let mut reader = kafka(&url).await.read(&orders(), StartAt::Beginning).await.unwrap();
    let mut first_seen = Vec::new();
    for stored in reader.read(20).await.unwrap() {
        let number = stored.message.unwrap().sequence.unwrap();
        if !first_seen.contains(&number) {
            first_seen.push(number);
        }
    }
    assert_eq!(first_seen, [1, 2, 3, 4], "copies come behind what they are copies of");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_takes_little_refuses_only_what_is_too_large_by_itself() {
    let Some(ground) = ground().await else { return };
    let ground = ground.lock().await;
    let url = ground.url().await;
    let prefix = url.rsplit_once("prefix=").unwrap().1;
    let mut config = ClientConfig::new();
    let admin: AdminClient<DefaultClientContext> =
        config.set("bootstrap.servers", ground.server.address()).create().unwrap();
    let name = format!("{prefix}orders");
    let small = NewTopic::new(&name, 1, TopicReplication::Fixed(1)).set("max.message.bytes", "10000");
    admin.create_topics([&small], &AdminOptions::new()).await.unwrap().remove(0).unwrap();

    let broker = kafka(&url).await;
    // Together they take many times what the topic takes at once.
    let mut batch: Vec<_> = (1..=100).map(|number| numbered(&format!("key-{}", number % 3), number)).collect();
    batch.iter_mut().for_each(|message| message.payload = vec![b'x'; 5_000].into());
    batch[10].payload = vec![b'x'; 10_000].into();
    let large_key = batch[10].key.clone();
    let outcomes = broker.publisher().publish(&batch).await;
    assert_rule(&batch, &outcomes);
    for (place, (message, outcome)) in batch.iter().zip(&outcomes).enumerate() {
        match outcome {
            Outcome::Refused(refusal) if place == 10 => {
                assert_eq!((&refusal.code, refusal.retriable), (&ErrorCode::TOO_LARGE, false));
            }
            Outcome::Refused(refusal) => {
                assert!(message.key == large_key && place > 10, "{place}: {refusal:?}");
                assert_eq!(refusal.code, ErrorCode::PREDECESSOR);
            }
            outcome => assert!(outcome.is_accepted(), "{place}: {outcome:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_what_the_cluster_refuses_for_good_nothing_of_the_key_is_accepted() {
    let Some(ground) = ground().await else { return };
    let ground = ground.lock().await;
    let url = ground.url().await.replace("partitions=4", "partitions=1&linger=0&message_bytes=4000");
    let name = format!("{}orders", url.rsplit_once("prefix=").unwrap().1);
    let broker = kafka(&url).await;
    let publisher = broker.publisher();
    assert!(publisher.publish(&[numbered("a", 0)]).await[0].is_accepted());
    // A topic that is compacted takes nothing without a key, which only the cluster can know.
    let mut config = ClientConfig::new();
    let admin: AdminClient<DefaultClientContext> =
        config.set("bootstrap.servers", ground.server.address()).create().unwrap();
    let compacted = AlterConfig::new(ResourceSpecifier::Topic(&name)).set("cleanup.policy", "compact");
    admin.alter_configs([&compacted], &AdminOptions::new()).await.unwrap().remove(0).unwrap();
    let keyless = || landfall_core::Message::new(orders(), "without a key");
    let refuses = async || !publisher.publish(&[keyless()]).await[0].is_accepted();
    eventually(Duration::from_secs(20), "the topic is compacted", refuses).await;

    // Many requests, several of them on their way when one in the middle is refused.
    let mut batch: Vec<_> = (1..=300).map(|number| numbered("a", number)).collect();
    batch.insert(100, keyless());
    let outcomes = publisher.publish(&batch).await;
    assert_rule(&batch, &outcomes);
    let Outcome::Refused(refusal) = &outcomes[100] else { panic!("{:?}", outcomes[100]) };
    assert_eq!((&refusal.code, refusal.retriable), (&ErrorCode::VALIDATION, false), "{refusal:?}");
    assert!(!outcomes[300].is_accepted(), "what was behind it in the partition was held back");
    // And it goes on from there, in order.
    let rest: Vec<_> = batch.iter().zip(&outcomes).filter(|(_, outcome)| !outcome.is_accepted()).collect();
    let rest: Vec<_> = rest.into_iter().map(|(message, _)| message.clone()).filter(|rest| rest.key.is_some()).collect();
    let sent = async || publisher.publish(&rest).await.iter().all(Outcome::is_accepted);
    eventually(Duration::from_secs(20), "the rest is accepted", sent).await;
}
