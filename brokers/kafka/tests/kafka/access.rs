//! Accounts and TLS: rejected credentials yield `denied`, are retriable, and no secret appears in any text.

use std::time::Duration;

use landfall_core::adapter::Demands;
use landfall_core::{Broker, Diagnose, ErrorCode, ErrorKind, Outcome, Span};
use landfall_testkit::servers::{KafkaOptions, KafkaServer};
use landfall_testkit::traffic::{keyed, orders};
use landfall_testkit::{current_test, eventually};
use tokio::sync::{Mutex, OnceCell};

use crate::support::{fresh_prefix, kafka, traffic};

const AUTHORITY: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/landfall-cli/tests/command/fixtures/tls/authority.pem");
const CERTIFICATE: &str = include_str!("../../../../crates/landfall-cli/tests/command/fixtures/tls/receiver.pem");
const KEY: &str = include_str!("../../../../crates/landfall-cli/tests/command/fixtures/tls/receiver.key");
const SECRET: &str = "s3cret-of-the-shop";

static SERVER: OnceCell<Option<Mutex<KafkaServer>>> = OnceCell::const_new();

fn accounts() -> Vec<(String, String)> {
    [(KafkaServer::ADMIN, SECRET), ("outsider", SECRET)].map(|(name, secret)| (name.into(), secret.into())).into()
}

/// A node with TLS and accounts, for one test at a time.
async fn server() -> Option<&'static Mutex<KafkaServer>> {
    let certificate = Some((CERTIFICATE.to_owned(), KEY.to_owned()));
    let options = KafkaOptions { accounts: accounts(), certificate, ..KafkaOptions::default() };
    let start = async || Some(Mutex::new(KafkaServer::start(&current_test(), options).await?));
    SERVER.get_or_init(start).await.as_ref()
}

fn url(server: &KafkaServer, account: &str, parameters: &str) -> String {
    let common = "partitions=2&timeout=5s&connect_timeout=4s&session_timeout=6s";
    format!("kafka://{account}@{}?{common}&prefix={}&{parameters}", server.address(), fresh_prefix())
}

fn with_tls(server: &KafkaServer, account: &str) -> String {
    url(server, account, &format!("tls=true&ca={AUTHORITY}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn publish_without_permission_is_denied_and_retriable() {
    let Some(server) = server().await else { return };
    let server = server.lock().await;
    for account in [format!("outsider:{SECRET}"), "admin:wrong-password".to_owned()] {
        let broker = kafka(&with_tls(&server, &account)).await;
        let mut outcomes = Vec::new();
        // Right after its start, a node's first handshake may take longer than the timeout.
        eventually(Duration::from_secs(60), "the cluster denies the publish", async || {
            outcomes = broker.publisher().publish(&[keyed("a", 1), keyed("a", 2)]).await;
            let [Outcome::Refused(first), Outcome::Refused(_)] = &outcomes[..] else { panic!("{outcomes:?}") };
            assert!(first.retriable, "{account}: {first:?}");
            first.code == ErrorCode::DENIED
        })
        .await;
        let text = format!("{outcomes:?} {broker:?}");
        assert!(!text.contains(SECRET) && !text.contains("wrong-password"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn untrusted_cluster_certificate_is_rejected() {
    let Some(server) = server().await else { return };
    let server = server.lock().await;
    let broker = kafka(&url(&server, &format!("admin:{SECRET}"), "tls=true")).await;
    let outcomes = broker.publisher().publish(&[keyed("a", 1)]).await;
    assert!(matches!(&outcomes[0], Outcome::Refused(refusal) if refusal.retriable), "{outcomes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_and_restored_credentials_lose_nothing() {
    let Some(server) = server().await else { return };
    let server = server.lock().await;
    let url = with_tls(&server, &format!("admin:{SECRET}"));
    let traffic = traffic(&url).await;
    traffic.wait_for_progress(300).await;
    let others = accounts().into_iter().filter(|(name, _)| name != KafkaServer::ADMIN).collect();
    server.restart_with(|options| options.accounts = others).await.unwrap();
    traffic.wait_for_refusal(ErrorCode::DENIED).await;
    server.restart_with(|options| options.accounts = accounts()).await.unwrap();
    traffic.wait_for_progress(300).await;
    traffic.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_settings_are_a_finding() {
    let Some(server) = server().await else { return };
    let server = server.lock().await;
    let broker = kafka(&with_tls(&server, &format!("outsider:{SECRET}"))).await;
    let found = broker.diagnose(&Demands { window: Span::days(30) }).await.unwrap();
    assert!(found.iter().any(|finding| finding.check == "kafka.hidden"), "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_topic_is_unknown_without_auto_creation() {
    let Some(server) = server().await else { return };
    let server = server.lock().await;
    let base = with_tls(&server, &format!("admin:{SECRET}"));
    let broker = kafka(&format!("{base}&create=false")).await;
    eventually(Duration::from_secs(60), "the topic is reported as unknown", async || {
        let outcomes = broker.publisher().publish(&[keyed("a", 1)]).await;
        let [Outcome::Refused(refusal)] = &outcomes[..] else { panic!("{outcomes:?}") };
        assert!(refusal.retriable, "{refusal:?}");
        refusal.code == ErrorCode::UNKNOWN_TOPIC
    })
    .await;
    assert_eq!(broker.read(&orders(), landfall_core::StartAt::End).await.err().unwrap().kind(), ErrorKind::NotFound);

    // A member waits for its topic, and receives messages once the topic is created.
    let group = landfall_core::GroupName::new("stock").unwrap();
    let mut subscriber = broker.subscribe(&orders(), &group).await.unwrap();
    use landfall_core::TopicAdministration;
    assert!(broker.create_topic(&orders(), Some(3)).await.unwrap());
    assert!(!broker.create_topic(&orders(), None).await.unwrap(), "the topic exists");
    assert_eq!(broker.create_topic(&orders(), Some(4)).await.unwrap_err().kind(), ErrorKind::Conflict);
    let message = keyed("a", 1);
    let published = async || broker.publisher().publish(std::slice::from_ref(&message)).await[0].is_accepted();
    eventually(Duration::from_secs(60), "the publisher finds the topic", published).await;
    let delivery = tokio::time::timeout(Duration::from_secs(60), subscriber.next()).await.unwrap().unwrap().unwrap();
    assert_eq!(delivery.message.unwrap().id, message.id);
    subscriber.close().await.unwrap();
    assert!(broker.delete_topic(&orders()).await.unwrap());
    let gone = async || !broker.delete_topic(&orders()).await.unwrap();
    eventually(Duration::from_secs(60), "the topic is gone", gone).await;
}
