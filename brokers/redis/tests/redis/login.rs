//! Authentication and TLS.

use std::net::TcpListener;
use std::path::Path;

use landfall_core::adapter::Demands;
use landfall_core::{Broker, Diagnose, ErrorKind, Span, StartAt, TopicAdministration};
use landfall_redis::{Options, Redis};
use landfall_testkit::current_test;
use landfall_testkit::servers::{Certificates, RedisOptions, RedisServer};
use landfall_testkit::traffic::{keyed, orders, stock};

use crate::support::{fresh_prefix, shared};

async fn round_trip(redis: &Redis) {
    assert!(redis.publisher().publish(&[keyed("a", 1)]).await[0].is_accepted());
    let mut subscriber = redis.subscribe(&orders(), &stock()).await.unwrap();
    let delivery = subscriber.next().await.unwrap().unwrap();
    assert_eq!(delivery.message.as_ref().unwrap().sequence, Some(1));
    delivery.ack().await.unwrap();
    subscriber.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn password_authenticates_and_is_never_printed() {
    let options = RedisOptions::durable().with("requirepass", "s3cret!word");
    let Some(server) = RedisServer::start_with(&current_test(), options).await else { return };
    let options = |account: &str| Options::from_url(&format!("redis://{account}127.0.0.1:{}", server.port())).unwrap();
    let right = options(":s3cret%21word@");
    assert!(!format!("{right:?}").contains("s3cret"));
    let redis = Redis::connect(right).await.unwrap();
    assert!(!format!("{redis:?}").contains("s3cret"), "{redis:?}");
    round_trip(&redis).await;
    for wrong in ["", ":s3cret%21words@", "shop:s3cret%21word@"] {
        let refused = Redis::connect(options(wrong)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "an operator can fix it: {refused}");
        assert!(!refused.to_string().contains("s3cret"), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn documented_permissions_suffice() {
    let Some(server) = shared().await else { return };
    let page = include_str!("../../../../docs/operate/brokers/redis.md");
    let rights = page.split("ACL SETUSER landfall on >… ").nth(1).and_then(|rest| rest.split('`').next());
    let rights = rights.expect("the page lists the permissions").replace("landfall:*", "rights:*");
    let answer = server.ask(&format!("ACL SETUSER landfall on >secret {rights}")).await.unwrap();
    assert!(answer.starts_with("+OK"), "{answer}");
    // Two hosts, so that ROLE is called too.
    let host = format!("127.0.0.1:{}", server.port());
    let url = format!("redis://landfall:secret@{host},{host}/0?prefix=rights:&retention=0&trim_every=1ms&replicas=0");
    let redis = Redis::connect(Options::from_url(&url).unwrap()).await.unwrap();
    round_trip(&redis).await;
    assert!(redis.capabilities().durable);
    assert_eq!(redis.topics().await.unwrap()[0].topic, orders());
    redis.read(&orders(), StartAt::End).await.unwrap().read(1).await.unwrap();
    let findings = redis.diagnose(&Demands { window: Span::days(45) }).await.unwrap();
    assert!(findings.iter().all(|finding| finding.check != "redis.hidden"), "{findings:?}");
    assert!(redis.delete_topic(&orders()).await.unwrap());
}

/// A server with TLS, its TLS port, and its certificates.
async fn start_with_tls(auth_clients: &str) -> Option<(RedisServer, u16, Certificates)> {
    let certificates = Certificates::make(&current_test()).await?;
    let (certificate, key) = certificates.server();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let options = RedisOptions::durable()
        .with("tls-port", &port.to_string())
        .with("tls-auth-clients", auth_clients)
        .with("tls-ca-cert-file", text(&certificates.authority()))
        .with("tls-cert-file", text(&certificate))
        .with("tls-key-file", text(&key));
    Some((RedisServer::start_with(&current_test(), options).await?, port, certificates))
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_trusts_only_the_configured_ca() {
    let Some((_server, port, certificates)) = start_with_tls("no").await else { return };
    for url in [format!("rediss://127.0.0.1:{port}?"), format!("redis://127.0.0.1:{port}?tls=true&")] {
        let url = format!("{url}prefix={}", fresh_prefix());
        let trusting = |ca: &Path| Options::from_url(&format!("{url}&ca={}", text(ca))).unwrap();
        round_trip(&Redis::connect(trusting(&certificates.authority())).await.unwrap()).await;
        for wrong in [Options::from_url(&url).unwrap(), trusting(&certificates.other_authority())] {
            let refused = Redis::connect(wrong).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Unavailable, "the certificate is not trusted: {refused}");
        }
    }
}

/// Redis with TLS requires client certificates by default.
#[tokio::test(flavor = "multi_thread")]
async fn client_certificate_authenticates() {
    let Some((_server, port, certificates)) = start_with_tls("yes").await else { return };
    let url = format!("rediss://127.0.0.1:{port}?ca={}&prefix=", text(&certificates.authority()));
    let (certificate, key) = certificates.client();
    let own = format!("{url}{}&certificate={}&key={}", fresh_prefix(), text(&certificate), text(&key));
    round_trip(&Redis::connect(Options::from_url(&own).unwrap()).await.unwrap()).await;
    let refused = Redis::connect(Options::from_url(&format!("{url}{}", fresh_prefix())).unwrap()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    assert!(refused.to_string().contains("set certificate= and key="), "{refused}");
}
