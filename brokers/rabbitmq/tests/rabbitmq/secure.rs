//! TLS: only a server that somebody vouches for is spoken to, on AMQP and on the management interface.

use std::path::Path;

use landfall_core::{Broker, Demands, Diagnose, Error, ErrorKind, Span};
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

/// The server's AMQP over TLS, and its management interface over https.
fn url(server: &RabbitMqServer, account: &str, ca: Option<&Path>, more: &str) -> String {
    let (amqp, management) = server.secure_addresses().unwrap();
    let ca = ca.map(|file| format!("&ca={}", file.display())).unwrap_or_default();
    let management = format!("https%3A%2F%2Fguest%3Aguest%40{management}");
    format!("amqps://{account}{amqp}?prefix={}&replicas=1&management={management}{ca}{more}", prefix())
}

async fn refused(url: &str) -> Error {
    let refused = RabbitMq::connect(Options::from_url(url).unwrap()).await.expect_err("it is not let in");
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "somebody may mend it: {refused}");
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
async fn a_server_is_believed_if_the_named_authority_vouches_for_it_and_no_other_does() {
    let Some((certificates, server)) = start(false).await else { return };
    let (authority, other) = (certificates.authority(), certificates.other_authority());
    let broker = round_trip(&url(&server, "guest:guest@", Some(&authority), "")).await;
    let sound = async || broker.diagnose(&DEMANDS).await.unwrap().is_empty();
    eventually(SOON, "the doctor looks over https and finds nothing", sound).await;
    assert_eq!(broker.topics().await.unwrap()[0].topic, orders());

    // Neither the authorities of the system nor somebody else's will do.
    for ca in [None, Some(other.as_path())] {
        let sentence = refused(&url(&server, "guest:guest@", ca, "")).await.to_string();
        assert!(sentence.contains("nobody who is trusted here vouches for its certificate"), "{sentence}");
    }

    // The management interface is judged by itself.
    let (amqp, management) = server.secure_addresses().unwrap();
    let mixed = url(&server, "guest:guest@", Some(&other), "").replace(&amqp, &format!("127.0.0.1:{}", server.port()));
    let mixed = RabbitMq::connect(Options::from_url(&mixed.replace("amqps:", "amqp:")).unwrap()).await.unwrap();
    let sentence = mixed.topics().await.unwrap_err().to_string();
    assert!(sentence.contains(&management) && sentence.contains("vouches for its certificate"), "{sentence}");

    // TLS where nobody speaks it.
    let plain =
        url(&server, "guest:guest@", Some(&authority), "").replace(&amqp, &format!("127.0.0.1:{}", server.port()));
    let sentence = refused(&plain).await.to_string();
    assert!(sentence.contains("does not speak TLS"), "{sentence}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_ones_own_opens_the_door_and_may_be_the_account() {
    let Some((certificates, server)) = start(true).await else { return };
    let authority = certificates.authority();
    let (certificate, key) = certificates.client();
    let own = format!("&certificate={}&key={}", certificate.display(), key.display());
    let sentence = refused(&url(&server, "guest:guest@", Some(&authority), "")).await.to_string();
    assert!(sentence.contains("asks for a certificate"), "{sentence}");
    round_trip(&url(&server, "guest:guest@", Some(&authority), &own)).await;

    // Without another account in the URL it is the one that the certificate names.
    let external = url(&server, "", Some(&authority), &own);
    refused(&external).await;
    server.manage("PUT", "/api/users/shop", r#"{"password":"","tags":""}"#).await.unwrap();
    let rights = r#"{"configure":".*","write":".*","read":".*"}"#;
    server.manage("PUT", "/api/permissions/%2F/shop", rights).await.unwrap();
    round_trip(&external).await;
}
