//! Each refusal has its own error code, and the messages are accepted once the cause is fixed.

use landfall_core::{Broker, ErrorCode, ErrorKind, Headers, Message, Outcome, TopicAdministration};
use landfall_nats::{Nats, Options};
use landfall_testkit::servers::{NatsOptions, NatsServer};
use landfall_testkit::traffic::{keyed, orders};
use landfall_testkit::{current_test, eventually};

use crate::support::{SOON, connect, shared};

/// The code of an outcome, and whether it is retriable.
fn code(outcome: &Outcome) -> (&str, bool) {
    match outcome {
        Outcome::Accepted(_) => ("accepted", true),
        Outcome::Refused(refusal) => (refusal.code.as_str(), refusal.retriable),
        Outcome::Unknown(_) => ("unknown", true),
    }
}

async fn publish(broker: &Nats, batch: &[Message]) -> Vec<Outcome> {
    broker.publisher().publish(batch).await
}

fn padded(key: &str, number: i64, bytes: usize) -> Message {
    let mut message = keyed(key, number);
    message.payload = vec![b'x'; bytes].into();
    message
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_topic_is_unknown_until_created() {
    let Some(server) = shared().await else { return };
    let broker = connect(&format!("{}?prefix=unknown.&create=false", server.url())).await;
    let batch = [keyed("a", 1), keyed("a", 2), keyed("b", 1)];
    let unknown = (ErrorCode::UNKNOWN_TOPIC.as_str().to_owned(), true);
    let outcomes = publish(&broker, &batch).await;
    assert_eq!(code(&outcomes[0]), (unknown.0.as_str(), true));
    assert_eq!(code(&outcomes[1]), (ErrorCode::PREDECESSOR.as_str(), true));
    assert_eq!(code(&outcomes[2]), (unknown.0.as_str(), true));
    assert_eq!(
        broker.read(&orders(), landfall_core::StartAt::Beginning).await.err().unwrap().kind(),
        ErrorKind::NotFound
    );

    assert!(broker.create_topic(&orders(), Some(2)).await.unwrap());
    assert!(!broker.create_topic(&orders(), Some(2)).await.unwrap());
    assert_eq!(broker.create_topic(&orders(), Some(3)).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert!(publish(&broker, &batch).await.iter().all(Outcome::is_accepted));

    // Another client deletes the topic: the publisher notices, and reports no message as accepted.
    let other = connect(&format!("{}?prefix=unknown.", server.url())).await;
    assert!(other.delete_topic(&orders()).await.unwrap());
    assert!(!other.delete_topic(&orders()).await.unwrap());
    let outcomes = publish(&broker, &[keyed("a", 3), keyed("a", 4)]).await;
    assert_eq!(code(&outcomes[0]), (unknown.0.as_str(), true));
    assert!(!outcomes[1].is_accepted());
}

#[tokio::test(flavor = "multi_thread")]
async fn full_topic_holds_back_only_the_affected_keys() {
    let Some(server) = shared().await else { return };
    for atomic in [true, false] {
        let url = format!("{}?prefix=full.{atomic}.&max_bytes=20000&partitions=1&atomic={atomic}", server.url());
        let broker = connect(&url).await;
        let batch = [padded("a", 1, 9_000), padded("b", 1, 15_000), padded("b", 2, 10), padded("a", 2, 10)];
        let outcomes = publish(&broker, &batch).await;
        let codes: Vec<_> = outcomes.iter().map(|outcome| code(outcome).0).collect();
        assert_eq!(codes, ["accepted", "STORAGE_FULL", "BEHIND_PREDECESSOR", "accepted"], "{outcomes:?}");
        assert_eq!(code(&outcomes[1]), ("STORAGE_FULL", true));

        let context = async_nats::jetstream::new(async_nats::connect(server.url()).await.unwrap());
        let stream = context.get_stream(format!("full={atomic}=orders")).await.unwrap();
        stream.purge().await.unwrap();
        assert!(publish(&broker, &batch[1..3]).await.iter().all(Outcome::is_accepted));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unsendable_messages_are_refused_before_sending() {
    let Some(server) = shared().await else { return };
    let broker = connect(&format!("{}?prefix=limits.", server.url())).await;
    let mut rollup = keyed("a", 1);
    let mut headers = Headers::default();
    headers.insert("Nats-Rollup", "all").unwrap();
    rollup.headers = headers;
    let batch = [rollup, keyed("a", 2), padded("b", 1, 2_000_000), keyed("c", 1)];
    let outcomes = publish(&broker, &batch).await;
    let codes: Vec<_> = outcomes.iter().map(code).collect();
    let expected =
        [("VALIDATION_ERROR", false), ("BEHIND_PREDECESSOR", true), ("TOO_LARGE", false), ("accepted", true)];
    assert_eq!(codes, expected);

    // A name that is too long for a stream, and a stream that is not a topic.
    let long = landfall_core::TopicName::new("x".repeat(249)).unwrap();
    let outcomes = publish(&broker, &[Message::new(long, Vec::new())]).await;
    assert_eq!(code(&outcomes[0]), ("VALIDATION_ERROR", false));
    let context = async_nats::jetstream::new(async_nats::connect(server.url()).await.unwrap());
    let config = async_nats::jetstream::stream::Config {
        name: "foreign=orders".into(),
        subjects: vec!["somewhere.else".into()],
        ..Default::default()
    };
    context.create_stream(config).await.unwrap();
    let broker = connect(&format!("{}?prefix=foreign.", server.url())).await;
    assert_eq!(code(&publish(&broker, &[keyed("a", 1)]).await[0]), ("UNKNOWN_TOPIC", true));
    assert_eq!(broker.delete_topic(&orders()).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert!(broker.topics().await.unwrap().is_empty());
}

fn users(password: &str, denied: &str) -> String {
    format!(
        "accounts {{ SHOP {{ jetstream: enabled, users: [ {{ user: shop, password: \"{password}\", permissions: {{ \
         publish: {{ deny: [\"{denied}\"] }} }} }} ] }} }}"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn publish_is_denied_until_the_permission_is_granted() {
    let options = NatsOptions { more: users("first", "nothing"), ..NatsOptions::default() };
    let Some(server) = NatsServer::start(&current_test(), options).await else { return };
    for atomic in [true, false] {
        let url = format!("nats://shop:first@{}?timeout=2s&prefix={atomic}.&atomic={atomic}", server.address());
        let broker = connect(&url).await;
        let batch = [keyed("a", 1), keyed("a", 2), keyed("b", 1)];
        let until = async |expected: &'static str| {
            eventually(SOON, expected, async || {
                let outcomes = publish(&broker, &batch).await;
                code(&outcomes[0]) == (expected, true) && code(&outcomes[2]) == (expected, true)
            })
            .await;
        };
        // The first publish creates the topic, which may exceed the timeout on a busy machine.
        until("accepted").await;
        server.reconfigure(&users("first", &format!("{atomic}.orders.>"))).await.unwrap();
        until("DENIED").await;
        server.reconfigure(&users("first", "nothing")).await.unwrap();
        until("accepted").await;
        // After a password change the server rejects the client.
        server.reconfigure(&users("second", "nothing")).await.unwrap();
        until("DENIED").await;
        server.reconfigure(&users("first", "nothing")).await.unwrap();
        until("accepted").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_credentials_fail_without_leaking_the_password() {
    let options = NatsOptions { more: users("right", "nothing"), ..NatsOptions::default() };
    let Some(server) = NatsServer::start(&current_test(), options).await else { return };
    let options = Options::from_url(&format!("nats://shop:hunter2@{}", server.address())).unwrap();
    let error = Nats::connect(options).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(
        error.to_string().contains("rejected the credentials") && !error.to_string().contains("hunter2"),
        "{error}"
    );
}
