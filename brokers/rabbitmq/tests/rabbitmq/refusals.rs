//! Each kind of refusal has its own error code.

use landfall_core::{Broker, TopicAdministration};
use landfall_core::{ErrorCode, ErrorKind, Message, Outcome};
use landfall_rabbitmq::{Options, RabbitMq};
use landfall_testkit::eventually;

use crate::support::*;

#[tokio::test(flavor = "multi_thread")]
async fn topic_without_groups_refuses_as_retriable() {
    let Some(server) = shared().await else { return };
    let broker = connect(&server.url(), &prefix(), "").await;
    let batch = [keyed("a", 1), keyed("a", 2), keyed("b", 1)];
    let outcomes = broker.publisher().publish(&batch).await;
    let codes: Vec<_> =
        outcomes.iter().map(|outcome| (refusal(outcome).code.clone(), refusal(outcome).retriable)).collect();
    let expected = [(ErrorCode::NO_CONSUMER, true), (ErrorCode::PREDECESSOR, true), (ErrorCode::NO_CONSUMER, true)];
    assert_eq!(codes, expected);
    let mut subscriber = subscribe(&broker).await;
    assert!(broker.publisher().publish(&batch).await.iter().all(Outcome::is_accepted));
    let mut arrived = [next(&mut subscriber).await, next(&mut subscriber).await, next(&mut subscriber).await];
    arrived.sort_by_key(|message| (message.key.clone(), message.sequence));
    assert_eq!(arrived, batch, "the refused attempt stored nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_topic_is_unknown_without_auto_creation() {
    let Some(server) = shared().await else { return };
    let prefix = prefix();
    let strict = connect(&server.url(), &prefix, "create=false").await;
    let outcome = publish_one(&strict, &keyed("a", 1)).await;
    assert_eq!(
        (&refusal(&outcome).code, refusal(&outcome).retriable),
        (&ErrorCode::UNKNOWN_TOPIC, true),
        "{outcome:?}"
    );
    let missing = strict.subscribe(&orders(), &stock()).await.err().unwrap();
    assert_eq!(missing.kind(), ErrorKind::NotFound, "{missing}");

    let generous = connect(&server.url(), &prefix, "").await;
    let mut subscriber = subscribe(&generous).await;
    assert!(publish_one(&strict, &keyed("a", 1)).await.is_accepted());
    assert_eq!(next(&mut subscriber).await.sequence, Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn too_large_message_holds_back_only_its_key() {
    let Some(server) = shared().await else { return };
    let broker = connect(&server.url(), &prefix(), "").await;
    let mut subscriber = subscribe(&broker).await;
    let mut batch = [keyed("a", 1), keyed("b", 1), keyed("b", 2), keyed("a", 2)];
    batch[1].payload = vec![7; SERVER_BYTES + 1].into();
    // The server closes the channel because of it, so other messages on the channel may need a retry.
    let mut outcomes = broker.publisher().publish(&batch).await;
    if !matches!(outcomes[1], Outcome::Refused(ref refusal) if refusal.code == ErrorCode::TOO_LARGE) {
        outcomes = broker.publisher().publish(&batch).await;
    }
    assert_eq!((&refusal(&outcomes[1]).code, refusal(&outcomes[1]).retriable), (&ErrorCode::TOO_LARGE, false));
    // From now on the publisher knows the limit and refuses the message before sending.
    let outcomes = broker.publisher().publish(&batch).await;
    assert!(outcomes[0].is_accepted() && outcomes[3].is_accepted(), "{outcomes:?}");
    assert_eq!(refusal(&outcomes[2]).code, ErrorCode::PREDECESSOR);
    loop {
        let arrived = next(&mut subscriber).await;
        assert_eq!(arrived.key, batch[0].key, "no message of the other key arrives");
        if arrived.sequence == Some(2) {
            break;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_headers_are_refused_before_sending() {
    let Some(server) = shared().await else { return };
    let broker = connect(&server.url(), &prefix(), "").await;
    let _subscriber = subscribe(&broker).await;
    let mut large = keyed("a", 1);
    for number in 0..SERVER_FRAME / 4_000 + 1 {
        large.headers.insert(&format!("header-{number}"), "x".repeat(4_000)).unwrap();
    }
    let outcome = publish_one(&broker, &large).await;
    assert_eq!((&refusal(&outcome).code, refusal(&outcome).retriable), (&ErrorCode::TOO_LARGE, false), "{outcome:?}");
    assert!(publish_one(&broker, &keyed("b", 1)).await.is_accepted());
}

#[tokio::test(flavor = "multi_thread")]
async fn full_queue_refuses_until_it_drains() {
    let Some(server) = shared().await else { return };
    let prefix = prefix();
    let policy = format!(
        r#"{{"pattern":"^{prefix}","definition":{{"max-length":20,"overflow":"reject-publish"}},"apply-to":"queues"}}"#
    );
    server.manage("PUT", &format!("/api/policies/%2F/{prefix}full"), &policy).await.unwrap();
    let broker = connect(&server.url(), &prefix, "").await;
    let mut subscriber = subscribe(&broker).await;
    let mut sent = 0;
    let full = async || {
        sent += 1;
        let outcome = publish_one(&broker, &keyed("a", sent)).await;
        if !outcome.is_accepted() {
            assert_eq!((&refusal(&outcome).code, refusal(&outcome).retriable), (&ErrorCode::STORAGE_FULL, true));
        }
        !outcome.is_accepted()
    };
    eventually(SOON, "the queue is full", full).await;
    for expected in 1..sent {
        assert_eq!(next(&mut subscriber).await.sequence, Some(expected));
    }
    let accepted = async || publish_one(&broker, &keyed("a", sent)).await.is_accepted();
    eventually(SOON, "the queue has space again", accepted).await;
    server.manage("DELETE", &format!("/api/policies/%2F/{prefix}full"), "").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn publish_is_denied_until_the_permission_is_granted() {
    let Some(server) = shared().await else { return };
    let prefix = prefix();
    let set_write_permission = async |write: &str| {
        let rights = format!(r#"{{"configure":".*","write":"{write}","read":".*"}}"#);
        server.manage("PUT", "/api/permissions/%2F/shop", &rights).await.unwrap();
    };
    let user = r#"{"password":"secret","tags":""}"#;
    server.manage("PUT", "/api/users/shop", user).await.unwrap();
    set_write_permission(".*").await;
    let url = server.url().replace("guest:guest", "shop:secret");
    let broker = connect(&url, &prefix, "").await;
    let mut subscriber = subscribe(&broker).await;
    let outcome_is = async |code: &ErrorCode| {
        let outcome = publish_one(&broker, &keyed("a", 1)).await;
        matches!(&outcome, Outcome::Refused(refusal) if refusal.code == *code && refusal.retriable)
    };
    assert!(publish_one(&broker, &keyed("a", 1)).await.is_accepted());

    // An open channel caches its permissions, so the change takes effect on a new one.
    set_write_permission("^$").await;
    let fresh = connect(&url, &prefix, "").await;
    let outcome = publish_one(&fresh, &keyed("a", 2)).await;
    assert_eq!((&refusal(&outcome).code, refusal(&outcome).retriable), (&ErrorCode::DENIED, true), "{outcome:?}");
    set_write_permission(".*").await;
    let accepted = async || publish_one(&fresh, &keyed("a", 2)).await.is_accepted();
    eventually(SOON, "the account can write again", accepted).await;

    server.manage("DELETE", "/api/users/shop", "").await.unwrap();
    eventually(SOON, "the deleted account is denied", async || outcome_is(&ErrorCode::DENIED).await).await;
    let error = RabbitMq::connect(Options::from_url(&url).unwrap()).await.err().unwrap().to_string();
    assert!(error.contains("cannot connect") && !error.contains("secret"), "{error}");
    server.manage("PUT", "/api/users/shop", user).await.unwrap();
    set_write_permission(".*").await;
    let accepted = async || publish_one(&broker, &keyed("a", 3)).await.is_accepted();
    eventually(SOON, "the account connects again", accepted).await;
    // The subscriber has reconnected automatically.
    while next(&mut subscriber).await.sequence != Some(3) {}
}

#[tokio::test(flavor = "multi_thread")]
async fn group_partitions_cannot_change() {
    let Some(server) = shared().await else { return };
    let prefix = prefix();
    create_group(&connect(&server.url(), &prefix, "").await).await;
    let url = format!("{}?prefix={prefix}&partitions=3", server.url());
    let other = connect_to(&url).await;
    let error = other.subscribe(&orders(), &stock()).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn topic_is_created_once_and_deleted_with_its_groups() {
    let Some(server) = shared().await else { return };
    let broker = connect(&server.url(), &prefix(), &management(&server)).await;
    assert!(broker.create_topic(&orders(), None).await.unwrap());
    assert!(!broker.create_topic(&orders(), Some(2)).await.unwrap());
    assert_eq!(broker.create_topic(&orders(), Some(9)).await.unwrap_err().kind(), ErrorKind::Conflict);
    create_group(&broker).await;
    assert!(publish_one(&broker, &keyed("a", 1)).await.is_accepted());
    assert_eq!(broker.topics().await.unwrap().len(), 1);
    assert!(broker.delete_topic(&orders()).await.unwrap());
    assert!(!broker.delete_topic(&orders()).await.unwrap());
    assert!(broker.topics().await.unwrap().is_empty());
    let mut subscriber = subscribe(&broker).await;
    let again = async || publish_one(&broker, &keyed("a", 2)).await.is_accepted();
    eventually(SOON, "the topic is created again", again).await;
    assert_eq!(next(&mut subscriber).await.sequence, Some(2), "the old messages were deleted");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_message_is_delivered_as_an_error() {
    let Some(server) = shared().await else { return };
    let prefix = prefix();
    let broker = connect(&server.url(), &prefix, "").await;
    let mut subscriber = subscribe(&broker).await;
    let foreign = r#"{"properties":{},"routing_key":"order-1","payload":"hello","payload_encoding":"string"}"#;
    server.manage("POST", &format!("/api/exchanges/%2F/{prefix}orders/publish"), foreign).await.unwrap();
    let delivery = tokio::time::timeout(SOON, subscriber.next()).await.unwrap().unwrap().unwrap();
    assert_eq!(delivery.message.as_ref().unwrap_err().to_string(), "the event has no ce_id");
    delivery.ack().await.unwrap();
    let message = Message::new(orders(), "sound");
    assert!(publish_one(&broker, &message).await.is_accepted());
    assert_eq!(next(&mut subscriber).await, message);
}
