//! TLS: the client trusts only endpoints whose certificate the configured CA signed.
use std::path::Path;

use landfall_core::{Broker, ErrorCode, ErrorKind, GroupName, Key, Message, Outcome, TopicName};
use landfall_sqs::{Options, Sqs};
use landfall_testkit::current_test;
use landfall_testkit::servers::{Certificates, Moto};

fn options(server: &Moto, ca: Option<&Path>) -> Options {
    let ca = ca.map(|file| format!("&ca={}", file.display())).unwrap_or_default();
    Options::from_url(&format!("sqs://key:secret@us-east-1?wait=1s&endpoint={}{ca}", server.endpoint())).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_trusts_only_the_configured_ca() {
    let Some(certificates) = Certificates::make(&current_test()).await else { return };
    let Some(server) = Moto::start_secure(&current_test(), &certificates).await else { return };
    let (topic, group) = (TopicName::new("orders").unwrap(), GroupName::new("stock").unwrap());
    let message = Message::new(topic.clone(), "one").with_key(Key::new("a").unwrap());
    let batch = std::slice::from_ref(&message);

    let other = certificates.other_authority();
    for ca in [None, Some(other.as_path())] {
        let distrustful = Sqs::connect(options(&server, ca)).await.unwrap();
        let outcomes = distrustful.publisher().publish(batch).await;
        let Outcome::Refused(refusal) = &outcomes[0] else { panic!("nothing was sent: {outcomes:?}") };
        assert_eq!((&refusal.code, refusal.retriable), (&ErrorCode::UNAVAILABLE, true), "{refusal:?}");
        assert!(refusal.reason.contains("no trusted CA signed its certificate"), "{refusal:?}");
        let error = distrustful.subscribe(&topic, &group).await.err().expect("subscribing fails too");
        assert!(error.to_string().contains("no trusted CA signed its certificate"), "{error}");
    }

    let authority = certificates.authority();
    let sqs = Sqs::connect(options(&server, Some(&authority))).await.unwrap();
    let mut subscriber = sqs.subscribe(&topic, &group).await.unwrap();
    assert!(sqs.publisher().publish(batch).await[0].is_accepted());
    let delivery = subscriber.next().await.unwrap().unwrap();
    assert_eq!(delivery.message.as_ref().unwrap().id, message.id);
    delivery.ack().await.unwrap();
    subscriber.close().await.unwrap();

    // An invalid CA file fails before any request.
    let (_, key) = certificates.server();
    for file in [key.as_path(), Path::new("/dev/null"), Path::new("/there/is/none")] {
        let error = Sqs::connect(options(&server, Some(file))).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("cannot be used"), "{error}");
    }
}
