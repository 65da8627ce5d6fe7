//! Interoperability with boto3 in both directions.

use landfall_core::{Broker, GroupName, Key, Kind, Message, MessageId, Timestamp, TopicName};
use landfall_sqs::{Options, Sqs};
use landfall_testkit::servers::python_sqs;
use landfall_testkit::{current_test, not_run};
use serde_json::{Value, json};

use crate::support::shared;

async fn boto(arguments: &[&str]) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/foreign/boto.py");
    let output =
        tokio::process::Command::new(python_sqs().unwrap()).arg(script).args(arguments).output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn interoperates_with_boto3() {
    if let Err(error) = python_sqs() {
        return not_run(&current_test(), &error.to_string());
    }
    let Some(server) = shared().await else { return };
    let endpoint = server.endpoint();
    let url = format!("sqs://key:secret@us-east-1?endpoint={endpoint}&prefix=shop-");
    let sqs = Sqs::connect(Options::from_url(&url).unwrap()).await.unwrap();
    let topic = TopicName::new("orders.v2").unwrap();
    let mut subscriber = sqs.subscribe(&topic, &GroupName::new("stock").unwrap()).await.unwrap();
    let queue = "shop-orders__v2.fifo";

    let mut sent = Message::new(topic.clone(), r#"{"total": 7, "city": "北京"}"#)
        .with_key(Key::new("order 1").unwrap())
        .with_sequence(3)
        .with_kind(Kind::new("OrderPlaced").unwrap());
    sent.headers.insert("tenant", "acme").unwrap();
    assert!(sqs.publisher().publish(std::slice::from_ref(&sent)).await[0].is_accepted());
    let read: Value = serde_json::from_str(&boto(&["read", &endpoint, queue]).await).unwrap();
    assert_eq!(read["text"], r#"{"total": 7, "city": "北京"}"#);
    for (name, value) in [
        ("ce_specversion", "1.0"),
        ("ce_id", &sent.id.to_string()),
        ("ce_type", "OrderPlaced"),
        ("ce_source", "landfall/orders.v2"),
        ("ce_time", &sent.time.to_string()),
        ("ce_subject", "order 1"),
        ("ce_partitionkey", "order 1"),
        ("ce_sequence", "3"),
        ("tenant", "acme"),
    ] {
        assert_eq!(read["attributes"][name], value, "{name} of {read}");
    }
    assert_eq!(read["system"]["MessageDeduplicationId"], sent.id.to_string());

    let id = MessageId::new();
    let attributes =
        json!({"ce_id": id.to_string(), "ce_type": "OrderPaid", "ce_time": "2026-05-01T10:00:00Z", "x": "y"});
    boto(&["write", &endpoint, queue, "order-2", "paid", &attributes.to_string()]).await;
    let delivery = subscriber.next().await.unwrap().unwrap();
    let message = delivery.message.as_ref().unwrap();
    assert_eq!((message.id, message.kind.as_str(), &message.payload[..]), (id, "OrderPaid", &b"paid"[..]));
    assert_eq!(message.key.as_ref().unwrap().as_str(), "order-2");
    assert_eq!(message.headers.get("x"), Some("y"));
    assert_eq!(message.time, "2026-05-01T10:00:00Z".parse::<Timestamp>().unwrap());
    delivery.ack().await.unwrap();
    boto(&["write", &endpoint, queue, "order-3", "without an id", r#"{"ce_type": "OrderPaid"}"#]).await;
    let invalid = subscriber.next().await.unwrap().unwrap();
    assert_eq!(invalid.message.as_ref().unwrap_err().to_string(), "the event has no ce_id");
    invalid.ack().await.unwrap();
    subscriber.close().await.unwrap();
}
