//! Interoperability with Confluent's Python client, in both directions.

use std::process::Stdio;
use std::time::Duration;

use landfall_core::{Broker, Key, Kind, Message};
use landfall_testkit::servers::services_folder;
use landfall_testkit::traffic::{orders, stock};
use landfall_testkit::{current_test, not_run};
use serde_json::Value;
use tokio::process::Command;

use crate::support::{fresh_prefix, kafka, shared};

/// Runs `tests/foreign/<script>`, which prints one JSON value per line.
async fn python(script: &str, arguments: &[&str]) -> Option<Vec<Value>> {
    let python = services_folder().join("python-kafka/bin/python");
    if !python.exists() {
        not_run(&current_test(), "the Python client of Kafka is not installed; run scripts/services");
        return None;
    }
    let script = format!("{}/tests/foreign/{script}", env!("CARGO_MANIFEST_DIR"));
    let run = Command::new(python).arg(script).args(arguments).stderr(Stdio::inherit()).output();
    let output = tokio::time::timeout(Duration::from_secs(60), run).await.expect("the script exits in time").unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    Some(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn interoperates_with_the_python_client() {
    let Some(server) = shared().await else { return };
    let prefix = fresh_prefix();
    let broker = kafka(&format!("{}?prefix={prefix}&partitions=3&source=/shop", server.url().await)).await;
    let topic = format!("{prefix}orders");
    let mut sent = Message::new(orders(), r#"{"total": 42}"#)
        .with_key(Key::new("客户 7").unwrap())
        .with_sequence(3)
        .with_kind(Kind::new("OrderPlaced").unwrap());
    sent.headers.insert("tenant", "北京").unwrap();
    sent.headers.insert("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").unwrap();
    let outcome = broker.publisher().publish(std::slice::from_ref(&sent)).await;
    assert!(outcome[0].is_accepted(), "{outcome:?}");

    let Some(read) = python("read.py", &[&server.address(), &topic, "1"]).await else { return };
    let [record] = &read[..] else { panic!("{read:?}") };
    assert_eq!((&record["key"], &record["payload"]), (&"客户 7".into(), &r#"{"total": 42}"#.into()));
    for (name, value) in [
        ("ce_specversion", "1.0"),
        ("ce_id", &sent.id.to_string()),
        ("ce_type", "OrderPlaced"),
        ("ce_source", "/shop"),
        ("ce_time", &sent.time.to_string()),
        ("ce_subject", "客户 7"),
        ("ce_partitionkey", "客户 7"),
        ("ce_sequence", "3"),
        ("tenant", "北京"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ] {
        assert_eq!(record["headers"][name], value, "{record}");
    }

    // A CloudEvent, which the same hash sends to the same partition, and a record that is not a CloudEvent.
    let id = landfall_core::MessageId::new().to_string();
    let Some(written) = python("write.py", &[&server.address(), &topic, &id]).await else { return };
    assert_eq!(written[0]["partition"], record["partition"], "both clients choose the same partition for a key");
    let mut subscriber = broker.subscribe(&orders(), &stock()).await.unwrap();
    let (mut parsed, mut refused) = (Vec::new(), Vec::new());
    while parsed.len() + refused.len() < 3 {
        let delivery = tokio::time::timeout(Duration::from_secs(30), subscriber.next()).await.unwrap();
        let (message, _, acknowledge) = delivery.unwrap().unwrap().into_parts();
        match message {
            Ok(message) => parsed.push(message),
            Err(error) => refused.push(error.to_string()),
        }
        acknowledge.ack().await.unwrap();
    }
    let foreign = parsed.iter().find(|message| message.id.to_string() == id).expect("the foreign event is parsed");
    assert_eq!((foreign.key.as_ref().unwrap().as_str(), foreign.kind.as_str()), ("客户 7", "OrderPaid"));
    assert_eq!((&foreign.payload[..], foreign.headers.get("tenant")), (&b"\x00\xffpaid"[..], Some("Köln")));
    assert_eq!(foreign.sequence, Some(4));
    assert!(parsed.contains(&sent));
    assert_eq!(refused, ["the event has no ce_id"]);
    subscriber.close().await.unwrap();
}
