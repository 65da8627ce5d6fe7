//! Missing queues.

use landfall_core::{Broker, ErrorCode, ErrorKind, Outcome, TopicAdministration};
use landfall_testkit::traffic::{keyed, orders, stock};

use crate::support::{SOON, connect, connect_with, shared};

#[tokio::test(flavor = "multi_thread")]
async fn missing_topic_is_unknown_until_created() {
    let Some(server) = shared().await else { return };
    let sqs = connect_with(&server.endpoint(), "create=false").await;
    let message = keyed("a", 1);
    let outcomes = sqs.publisher().publish(std::slice::from_ref(&message)).await;
    let Outcome::Refused(refusal) = &outcomes[0] else { panic!("{outcomes:?}") };
    assert_eq!((&refusal.code, refusal.retriable), (&ErrorCode::UNKNOWN_TOPIC, true), "{refusal:?}");
    assert_eq!(sqs.subscribe(&orders(), &stock()).await.err().unwrap().kind(), ErrorKind::NotFound);

    assert!(sqs.create_topic(&orders(), None).await.unwrap());
    assert!(!sqs.create_topic(&orders(), Some(1)).await.unwrap());
    assert_eq!(sqs.create_topic(&orders(), Some(4)).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert!(sqs.publisher().publish(std::slice::from_ref(&message)).await[0].is_accepted());
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_queue_is_created_again() {
    let Some(server) = shared().await else { return };
    let sqs = connect(&server.endpoint()).await;
    let mut subscriber = sqs.subscribe(&orders(), &stock()).await.unwrap();
    assert!(sqs.publisher().publish(&[keyed("a", 1)]).await[0].is_accepted());
    subscriber.next().await.unwrap().unwrap().ack().await.unwrap();
    // Another client deletes the queue, so the first one is not informed.
    let other = landfall_sqs::Sqs::clone(&sqs);
    assert!(other.delete_topic(&orders()).await.unwrap());
    let again = keyed("a", 2);
    let published = async {
        while !sqs.publisher().publish(std::slice::from_ref(&again)).await[0].is_accepted() {}
        subscriber.next().await.unwrap().unwrap().message.unwrap().id
    };
    assert_eq!(tokio::time::timeout(SOON, published).await.expect("publisher and subscriber recover"), again.id);
}

#[tokio::test(flavor = "multi_thread")]
async fn topic_is_created_and_deleted_once() {
    let Some(server) = shared().await else { return };
    let sqs = connect(&server.endpoint()).await;
    assert!(sqs.create_topic(&orders(), None).await.unwrap());
    assert!(!sqs.create_topic(&orders(), None).await.unwrap());
    assert!(sqs.delete_topic(&orders()).await.unwrap());
    assert!(!sqs.delete_topic(&orders()).await.unwrap());
    assert_eq!(sqs.topics().await.unwrap(), []);
}
