//! Interoperability with pika, the Python client, in both directions.

use std::path::Path;
use std::process::Stdio;

use landfall_core::{Kind, Outcome};
use landfall_rabbitmq::RabbitMq;
use landfall_testkit::servers::services_folder;
use landfall_testkit::{current_test, not_run};
use serde_json::Value;

use crate::support::*;

/// Runs `tests/foreign/<script>` and returns its output, or `None` if pika is not installed.
async fn python(script: &str, arguments: &[String]) -> Option<String> {
    let python = services_folder().join("python-rabbitmq/bin/python");
    if !python.is_file() {
        not_run(&current_test(), "pika is not installed; run scripts/services");
        return None;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/foreign").join(script);
    let mut command = tokio::process::Command::new(python);
    command.arg(script).args(arguments).stderr(Stdio::piped()).kill_on_drop(true);
    let output = tokio::time::timeout(SOON, command.output()).await.expect("the script exits in time").unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

/// One queue per group, so that the script knows its name.
async fn broker(port: u16, prefix: &str) -> RabbitMq {
    let url = format!("amqp://127.0.0.1:{port}?prefix={prefix}&partitions=1&source=shop");
    connect_to(&url).await
}

#[tokio::test(flavor = "multi_thread")]
async fn pika_reads_our_messages() {
    let Some(server) = shared().await else { return };
    let prefix = prefix();
    let broker = broker(server.port(), &prefix).await;
    create_group(&broker).await;
    let mut message = keyed("客户 42", 7).with_kind(Kind::new("OrderPlaced").unwrap());
    message.headers.insert("tenant", "Zürich").unwrap();
    let outcome = publish_one(&broker, &message).await;
    assert!(matches!(outcome, Outcome::Accepted(_)), "{outcome:?}");
    let queue = format!("{prefix}orders:stock:0");
    let Some(printed) = python("read.py", &[server.port().to_string(), queue, "1".into()]).await else { return };
    let read: Value = serde_json::from_str(printed.trim()).unwrap();
    let id = message.id.to_string();
    for (header, expected) in [
        ("ce_specversion", "1.0"),
        ("ce_id", &id),
        ("ce_type", "OrderPlaced"),
        ("ce_source", "shop"),
        ("ce_subject", "客户 42"),
        ("ce_partitionkey", "客户 42"),
        ("ce_sequence", "7"),
        ("ce_time", &message.time.to_string()),
        ("tenant", "Zürich"),
    ] {
        assert_eq!(read["headers"][header], expected, "{header}");
    }
    assert_eq!((&read["message_id"], &read["delivery_mode"]), (&Value::from(id.as_str()), &Value::from(2)));
    assert_eq!(read["body"], "5a6i5oi3IDQyLzc=");
}

#[tokio::test(flavor = "multi_thread")]
async fn pika_messages_are_read() {
    let Some(server) = shared().await else { return };
    let prefix = prefix();
    // Several queues: a routing key that is not a slot goes to one of them.
    let broker = connect(&server.url(), &prefix, "").await;
    let mut subscriber = subscribe(&broker).await;
    let exchange = format!("{prefix}orders");
    if python("write.py", &[server.port().to_string(), exchange]).await.is_none() {
        return;
    }
    for number in 0..3 {
        let message = next(&mut subscriber).await;
        assert_eq!(message.key.as_ref().unwrap().as_str(), "order-7");
        assert_eq!(message.kind.as_str(), "shop.order.placed");
        assert_eq!((message.sequence, message.time.to_string().as_str()), (Some(number), "2026-05-01T12:00:00.000Z"));
        assert_eq!(message.headers.get("tenant"), Some("Zürich"));
        assert_eq!(message.payload, format!(r#"{{"number": {number}}}"#));
    }
}
