//! Passwords and TLS.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod support;

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use landfall_core::{Broker, ErrorKind};
use landfall_redis::{Options, Redis};
use landfall_testkit::servers::{RedisOptions, RedisServer};
use landfall_testkit::{current_test, not_run};
use support::{group, keyed, topic};

async fn round_trip(redis: &Redis) {
    assert!(redis.publisher().publish(&[keyed("a", 1)]).await[0].is_accepted());
    let mut subscriber = redis.subscribe(&topic("orders"), &group("stock")).await.unwrap();
    let delivery = subscriber.next().await.unwrap().unwrap();
    assert_eq!(delivery.message.as_ref().unwrap().sequence, Some(1));
    delivery.ack().await.unwrap();
    subscriber.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_opens_the_door_and_is_never_shown() {
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
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "somebody may mend it: {refused}");
        assert!(!refused.to_string().contains("s3cret"), "{refused}");
    }
}

/// A certificate for 127.0.0.1, and one that vouches for it.
fn certificates(folder: &Path) -> bool {
    let run = |arguments: &[&str]| {
        let output = Command::new("openssl").current_dir(folder).args(arguments).output();
        output.is_ok_and(|output| output.status.success())
    };
    let new = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"];
    let authority = ["-subj", "/CN=Landfall tests", "-keyout", "ca.key", "-out", "ca.pem"];
    let own = ["-subj", "/CN=localhost", "-keyout", "own.key", "-out", "own.pem", "-CA", "ca.pem", "-CAkey", "ca.key"];
    let extensions = ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"];
    run(&[&new[..], &authority].concat())
        && run(&[&new[..], &own, &extensions].concat())
        && ["", "own.key"].iter().all(|file| {
            // The server may run under another account.
            std::fs::set_permissions(folder.join(file), std::fs::Permissions::from_mode(0o755)).is_ok()
        })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_a_certificate_is_trusted_by_its_authority_alone() {
    let folder = tempfile::tempdir().unwrap();
    if !certificates(folder.path()) {
        return not_run(&current_test(), "there is no openssl that makes certificates");
    }
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let options = RedisOptions::durable()
        .with("tls-port", &port.to_string())
        .with("tls-auth-clients", "no")
        .with("tls-ca-cert-file", &path("ca.pem"))
        .with("tls-cert-file", &path("own.pem"))
        .with("tls-key-file", &path("own.key"));
    let Some(_server) = RedisServer::start_with(&current_test(), options).await else { return };
    for url in [format!("rediss://127.0.0.1:{port}?"), format!("redis://127.0.0.1:{port}?tls=true&")] {
        let url = format!("{url}prefix={}", support::fresh_prefix());
        let trusting = Options::from_url(&format!("{url}&ca={}", path("ca.pem"))).unwrap();
        round_trip(&Redis::connect(trusting).await.unwrap()).await;
        let refused = Redis::connect(Options::from_url(&url).unwrap()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "nobody vouches for it: {refused}");
    }
}
