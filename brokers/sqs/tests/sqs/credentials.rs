//! Revoked permissions.

use landfall_core::{Broker, ErrorCode, Outcome};
use landfall_sqs::{Options, Sqs};
use landfall_testkit::current_test;
use landfall_testkit::servers::Moto;
use landfall_testkit::traffic::{keyed, orders, stock};

use crate::accounts::Accounts;
use crate::support::SOON;

#[tokio::test(flavor = "multi_thread")]
async fn revoked_permissions_are_denied_until_restored() {
    let Some(server) = Moto::start(&current_test()).await else { return };
    let accounts = Accounts::create(&server).await;
    let (key, secret) = (&accounts.shop.key, accounts.shop.secret.replace('/', "%2F").replace('+', "%2B"));
    let url = format!("sqs://{key}:{secret}@us-east-1?endpoint={}&wait=1s", server.endpoint());
    let sqs = Sqs::connect(Options::from_url(&url).unwrap()).await.unwrap();
    let (publisher, mut subscriber) = (sqs.publisher(), sqs.subscribe(&orders(), &stock()).await.unwrap());
    assert!(publisher.publish(&[keyed("a", 1)]).await[0].is_accepted());
    subscriber.next().await.unwrap().unwrap().ack().await.unwrap();

    accounts.allow(&[]).await;
    let message = keyed("a", 2);
    let outcomes = publisher.publish(std::slice::from_ref(&message)).await;
    let Outcome::Refused(refusal) = &outcomes[0] else { panic!("{outcomes:?}") };
    assert_eq!((&refusal.code, refusal.retriable), (&ErrorCode::DENIED, true), "{refusal:?}");
    assert!(!refusal.reason.contains(&accounts.shop.secret), "{refusal:?}");
    let received = tokio::time::timeout(std::time::Duration::from_secs(2), subscriber.next()).await;
    assert!(received.is_err(), "a subscriber waits until the permission is restored: {received:?}");

    accounts.allow(&["sqs:*"]).await;
    assert!(publisher.publish(std::slice::from_ref(&message)).await[0].is_accepted());
    let delivery =
        tokio::time::timeout(SOON, subscriber.next()).await.expect("the subscriber recovers").unwrap().unwrap();
    assert_eq!(delivery.message.unwrap().id, message.id);
}
