//! Order per key after temporary refusals. librdkafka's mock cluster injects them, because a real cluster does not
//! refuse on demand. The mock does not check sequence numbers, so `outcomes.rs` tests permanent refusals on a real
//! node.

use std::time::Duration;

use landfall_core::{Broker, ErrorCode, Message, Outcome};
use landfall_testkit::eventually;
use landfall_testkit::traffic::{assert_keys_wait, keyed};
use rdkafka::mocking::MockCluster;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr as Code};

use crate::support::kafka;

const COUNT: i64 = 200;

/// Publishes messages of one key, one per request, to a cluster that answers with `errors`. Returns the outcomes.
async fn publish(errors: &[Code], parameters: &str) -> (Vec<Message>, Vec<Outcome>) {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("orders", 1, 1).unwrap();
    let url = format!("kafka://{}?connect_timeout=2s&{parameters}", cluster.bootstrap_servers());
    let broker = kafka(&url).await;
    let publisher = broker.publisher();
    assert!(publisher.publish(&[keyed("a", 0)]).await[0].is_accepted());
    cluster.request_errors(RDKafkaApiKey::Produce, errors);
    let batch: Vec<_> = (1..=COUNT).map(|number| keyed("a", number)).collect();
    let outcomes = publisher.publish(&batch).await;
    assert_keys_wait(&batch, &outcomes);
    // Publishing then continues in order.
    let rest: Vec<_> =
        batch.iter().zip(&outcomes).filter(|(_, outcome)| !outcome.is_accepted()).map(|(m, _)| m.clone()).collect();
    let sent = async || publisher.publish(&rest).await.iter().all(Outcome::is_accepted);
    eventually(Duration::from_secs(60), "the rest is accepted", sent).await;
    (batch, outcomes)
}

#[tokio::test(flavor = "multi_thread")]
async fn temporary_refusals_are_retried_in_order() {
    let errors = [
        Code::RD_KAFKA_RESP_ERR_NO_ERROR,
        Code::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
        Code::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
        Code::RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT,
    ];
    let (_, outcomes) = publish(&errors, "linger=0&message_bytes=2000").await;
    assert!(outcomes.iter().all(Outcome::is_accepted), "{outcomes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn refusal_holds_back_its_key_without_idempotence() {
    let (batch, outcomes) = publish(&[Code::RD_KAFKA_RESP_ERR_INVALID_RECORD], "linger=0&acks=1").await;
    assert_eq!(batch.len(), outcomes.len());
    assert!(matches!(&outcomes[0], Outcome::Refused(refusal) if refusal.code == ErrorCode::VALIDATION), "{outcomes:?}");
    assert!(matches!(&outcomes[1], Outcome::Refused(refusal) if refusal.code == ErrorCode::PREDECESSOR));
}
