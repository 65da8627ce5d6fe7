//! Interoperability with redis-py in both directions.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use landfall_core::{Broker, Key, Kind, Message, MessageId};
use landfall_redis::Redis;
use landfall_testkit::servers::services_folder;
use landfall_testkit::traffic::{orders, stock};
use landfall_testkit::{current_test, not_run};

use crate::support::{SOON, options_for, shared};

/// Runs `tests/foreign/<script>` and returns its output, or `None` if redis-py is not installed.
fn python(script: &str, arguments: &[&str]) -> Option<String> {
    let program = services_folder().join("python-redis/bin/python");
    if !program.exists() {
        not_run(&current_test(), "redis-py is not installed; run scripts/services");
        return None;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/foreign").join(script);
    let output = Command::new(program).arg(script).args(arguments).env("PYTHONIOENCODING", "utf-8").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_py_reads_our_messages() {
    let Some(server) = shared().await else { return };
    let mut options = options_for(server.port(), "source=/shop");
    options.partitions = 3;
    let redis = Redis::connect(options.clone()).await.unwrap();
    let mut message = Message::new(orders(), vec![0, 255, 10])
        .with_key(Key::new("客户 1").unwrap())
        .with_sequence(7)
        .with_kind(Kind::new("OrderPlaced").unwrap());
    message.headers.insert("tenant", "北京").unwrap();
    let outcome = redis.publisher().publish(std::slice::from_ref(&message)).await.remove(0);
    let landfall_core::Outcome::Accepted(position) = outcome else { panic!("{outcome:?}") };

    let Some(printed) = python("read.py", &[&server.port().to_string(), &options.prefix, "orders"]) else { return };
    let lines: Vec<serde_json::Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [entry] = &lines[..] else { panic!("{printed}") };
    let headers: BTreeMap<String, String> = serde_json::from_value(entry["headers"].clone()).unwrap();
    let expected = [
        ("ce_specversion", "1.0"),
        ("ce_id", &message.id.to_string()),
        ("ce_type", "OrderPlaced"),
        ("ce_source", "/shop"),
        ("ce_time", &message.time.to_string()),
        ("ce_subject", "客户 1"),
        ("ce_partitionkey", "客户 1"),
        ("ce_sequence", "7"),
        ("landfall-mode", &message.mode.to_string()),
        ("tenant", "北京"),
    ];
    assert_eq!(headers, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    assert_eq!(entry["payload"], "00ff0a");
    // The position encodes the entry's id, as docs/operate/brokers/redis.md documents.
    let id = format!("{}-{}", position.offset >> 21, position.offset & ((1 << 21) - 1));
    assert_eq!(entry["entry"], id);
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_py_messages_are_read_and_non_events_rejected() {
    let Some(server) = shared().await else { return };
    let options = options_for(server.port(), "partitions=1");
    let redis = Redis::connect(options.clone()).await.unwrap();
    let mut subscriber = redis.subscribe(&orders(), &stock()).await.unwrap();
    let ids = [MessageId::new(), MessageId::new()];
    let [first, second] = ids.map(|id| id.to_string());
    let arguments = [&server.port().to_string(), options.prefix.as_str(), "orders", &first, &second];
    if python("write.py", &arguments).is_none() {
        return;
    }
    let mut arrived = Vec::new();
    for _ in 0..3 {
        let delivery = tokio::time::timeout(SOON, subscriber.next()).await.unwrap().unwrap().unwrap();
        let (message, _, acknowledge) = delivery.into_parts();
        acknowledge.ack().await.unwrap();
        arrived.push(message);
    }
    let full = arrived[0].as_ref().unwrap();
    assert_eq!((full.id, full.kind.as_str(), full.sequence), (ids[0], "OrderPlaced", Some(7)));
    assert_eq!(full.key.as_ref().map(Key::as_str), Some("客户 1"));
    assert_eq!(full.time.to_string(), "2026-11-15T08:40:00.000Z");
    assert_eq!((full.headers.get("tenant"), &full.payload[..]), (Some("北京"), &[0, 255, 10][..]));
    let sparse = arrived[1].as_ref().unwrap();
    assert_eq!((sparse.id, &sparse.key, sparse.payload.len()), (ids[1], &None, 0));
    assert_eq!(arrived[2].as_ref().unwrap_err().to_string(), "the event has no ce_id");
    subscriber.close().await.unwrap();
}
