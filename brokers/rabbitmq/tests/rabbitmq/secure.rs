//! TLS: the client verifies the server's certificate, on AMQP and on the management interface.

use std::path::Path;

use landfall_core::adapter::Demands;
use landfall_core::{Broker, Diagnose, Error, ErrorKind, Span};
use landfall_rabbitmq::{Options, RabbitMq};
use landfall_testkit::servers::{Certificates, RabbitMqServer};
use landfall_testkit::{current_test, eventually};

use crate::support::{SOON, keyed, next, orders, prefix, publish_one, subscribe};

const DEMANDS: Demands = Demands { window: Span::Forever };

async fn start(strict: bool) -> Option<(Certificates, RabbitMqServer)> {
    let certificates = Certificates::make(&current_test()).await?;
    let server = RabbitMqServer::start_secure(&current_test(), &certificates, strict).await?;
    Some((certificates, server))
}

/// A URL with AMQP over TLS and the management interface over https.
fn url(server: &RabbitMqServer, account: &str, ca: Option<&Path>, more: &str) -> String {
    let (amqp, management) = server.secure_addresses().unwrap();
    let ca = ca.map(|file| format!("&ca={}", file.display())).unwrap_or_default();
    let management = format!("https%3A%2F%2Fguest%3Aguest%40{management}");
    format!("amqps://{account}{amqp}?prefix={}&replicas=1&management={management}{ca}{more}", prefix())
}

async fn refused(url: &str) -> Error {
    let refused = RabbitMq::connect(Options::from_url(url).unwrap()).await.expect_err("the connection fails");
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "an operator can fix it: {refused}");
    refused
}

async fn round_trip(url: &str) -> RabbitMq {
    let broker = RabbitMq::connect(Options::from_url(url).unwrap()).await.unwrap();
    let mut subscriber = subscribe(&broker).await;
    assert!(publish_one(&broker, &keyed("a", 1)).await.is_accepted());
    assert_eq!(next(&mut subscriber).await.sequence, Some(1));
    broker
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_trusts_only_the_configured_ca() {
    let Some((certificates, server)) = start(false).await else { return };
    let (authority, other) = (certificates.authority(), certificates.other_authority());
    let broker = round_trip(&url(&server, "guest:guest@", Some(&authority), "")).await;
    let healthy = async || broker.diagnose(&DEMANDS).await.unwrap().is_empty();
    eventually(SOON, "the doctor connects over https and has no findings", healthy).await;
    assert_eq!(broker.topics().await.unwrap()[0].topic, orders());

    // Neither the system's CAs nor another CA is accepted.
    for ca in [None, Some(other.as_path())] {
        let text = refused(&url(&server, "guest:guest@", ca, "")).await.to_string();
        assert!(text.contains("no trusted CA signed its certificate"), "{text}");
    }

    // The management interface's certificate is verified separately.
    let (amqp, management) = server.secure_addresses().unwrap();
    let mixed = url(&server, "guest:guest@", Some(&other), "").replace(&amqp, &format!("127.0.0.1:{}", server.port()));
    let mixed = RabbitMq::connect(Options::from_url(&mixed.replace("amqps:", "amqp:")).unwrap()).await.unwrap();
    let text = mixed.topics().await.unwrap_err().to_string();
    assert!(text.contains(&management) && text.contains("no trusted CA signed its certificate"), "{text}");

    // TLS to a port without TLS.
    let plain =
        url(&server, "guest:guest@", Some(&authority), "").replace(&amqp, &format!("127.0.0.1:{}", server.port()));
    let text = refused(&plain).await.to_string();
    assert!(text.contains("does not speak TLS"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn client_certificate_authenticates() {
    let Some((certificates, server)) = start(true).await else { return };
    let authority = certificates.authority();
    let (certificate, key) = certificates.client();
    let own = format!("&certificate={}&key={}", certificate.display(), key.display());
    let text = refused(&url(&server, "guest:guest@", Some(&authority), "")).await.to_string();
    assert!(text.contains("require") && text.contains("a client certificate"), "{text}");
    round_trip(&url(&server, "guest:guest@", Some(&authority), &own)).await;

    // Without an account in the URL, the certificate names the account.
    let external = url(&server, "", Some(&authority), &own);
    refused(&external).await;
    server.manage("PUT", "/api/users/shop", r#"{"password":"","tags":""}"#).await.unwrap();
    let rights = r#"{"configure":".*","write":".*","read":".*"}"#;
    server.manage("PUT", "/api/permissions/%2F/shop", rights).await.unwrap();
    round_trip(&external).await;
}
