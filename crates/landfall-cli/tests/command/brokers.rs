//! The daemon with real brokers: from the request that commits a message to its push, with a kill in between.

use std::collections::HashSet;

use landfall_testkit::servers::{
    ElasticMq, KafkaOptions, KafkaServer, NatsOptions, NatsServer, RabbitMqServer, RedisOptions, RedisServer,
};
use landfall_testkit::{assert_no_violation, current_test, eventually};

use super::support::{Receiver, Sandbox, TIMEOUT, response};

const KEYS: [&str; 3] = ["a", "b", "c"];
const EACH: usize = 8;

/// Every message sent over the broker at `url` arrives, in order per key, although the daemon is killed halfway. So
/// does one that waits in the retry topic at that time.
async fn everything_lands(url: &str) {
    let sandbox = Sandbox::new();
    let receiver = Receiver::accepting().await;
    let busy_once = Receiver::start(|number, _| response(if number == 0 { 500 } else { 204 }, "", "")).await;
    let late = format!(
        "[[subscription]]\ntopic = \"late\"\ngroup = \"mailer\"\nurl = \"http://{}/\"\nretry_lane = \"topic\"\n\
         backoff_first_ms = 2500\nbackoff_cap_ms = 2500\n",
        busy_once.address
    );
    sandbox.configure(&format!("{late}{}\n[broker]\nurl = {url:?}\n", receiver.subscription("")));
    let mut daemon = sandbox.serve().await;
    let mut sent = Vec::new();
    let late = daemon.send(r#"{"topic":"late","payload":0}"#).await;
    for number in 0..EACH {
        if number == EACH / 2 {
            eventually(TIMEOUT, "a message fails", async || !busy_once.requests().is_empty()).await;
            daemon.kill().await;
            daemon = sandbox.serve().await;
        }
        for key in KEYS {
            let body = format!(r#"{{"topic":"orders","key":"{key}","sequence":{number},"payload":{number}}}"#);
            sent.push(daemon.send(&body).await);
        }
    }
    let count = sent.len() as i64 + 1;
    eventually(TIMEOUT, "every message is delivered", async || {
        sandbox.count("SELECT count(*) FROM landfall_inbox").await == count
    })
    .await;

    // A daemon killed between the post and its commit posts again with the same id.
    let mut seen = HashSet::new();
    let first: Vec<_> =
        receiver.requests().into_iter().filter(|request| seen.insert(request.header("ce-id").to_owned())).collect();
    let sent: HashSet<_> = sent.into_iter().collect();
    assert_no_violation(seen == sent, format!("sent: {sent:?}, arrived: {seen:?}"));
    for key in KEYS {
        let of_key = first.iter().filter(|request| request.header("ce-partitionkey") == key);
        let numbers: Vec<_> = of_key.map(|request| request.header("ce-sequence").to_owned()).collect();
        let expected: Vec<_> = (0..EACH).map(|number| number.to_string()).collect();
        assert_no_violation(numbers == expected, format!("key {key}: {numbers:?}"));
    }

    let retried = busy_once.requests();
    assert!(retried.len() >= 2 && retried.iter().all(|request| request.header("ce-id") == late), "{retried:?}");
    let topics = sandbox.run(&["topic", "list", "--json"]).await.objects();
    for name in ["orders", "late.retry"] {
        assert!(topics.iter().any(|topic| topic["topic"] == name), "{name} is not in {topics:?}");
    }
    // A single node can lose messages, so the exit code may be 1; but the broker must be reachable.
    let diagnosis: serde_json::Value = serde_json::from_str(&sandbox.run(&["doctor", "--json"]).await.stdout).unwrap();
    let unreachable = |finding: &serde_json::Value| finding["check"].as_str().unwrap().ends_with("unreachable");
    assert!(!diagnosis["findings"].as_array().unwrap().iter().any(unreachable), "{diagnosis}");
}

#[tokio::test]
async fn everything_lands_over_kafka() {
    let Some(kafka) = KafkaServer::start(&current_test(), KafkaOptions::default()).await else { return };
    // The group waits until the session of the killed daemon has ended, and once more if it was killed while it joined.
    everything_lands(&format!("{}?session_timeout=6s", kafka.url().await)).await;
}

#[tokio::test]
async fn everything_lands_over_nats() {
    let Some(nats) = NatsServer::start(&current_test(), NatsOptions::default()).await else { return };
    everything_lands(&nats.url()).await;
}

#[tokio::test]
async fn everything_lands_over_rabbitmq() {
    let Some(rabbitmq) = RabbitMqServer::start(&current_test()).await else { return };
    everything_lands(&format!("{}?management={}", rabbitmq.url(), rabbitmq.management_url())).await;
}

#[tokio::test]
async fn everything_lands_over_redis() {
    let Some(redis) = RedisServer::start_with(&current_test(), RedisOptions::durable()).await else { return };
    everything_lands(&redis.url()).await;
}

#[tokio::test]
async fn everything_lands_over_sqs() {
    let Some(elasticmq) = ElasticMq::start(&current_test()).await else { return };
    // Messages in flight in the killed daemon are redelivered after the visibility timeout.
    everything_lands(&format!("sqs://key:secret@eu-west-1?visibility=5s&endpoint={}", elasticmq.endpoint())).await;
}
