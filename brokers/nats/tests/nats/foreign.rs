//! Interoperability with nats-py in both directions, and messages that the NATS client cannot parse.

use std::collections::BTreeMap;
use std::path::Path;

use landfall_core::{Broker, Headers, Kind, Outcome, StartAt, TopicAdministration};
use landfall_testkit::servers::services_folder;
use landfall_testkit::traffic::{keyed, orders, stock};
use landfall_testkit::{current_test, eventually, not_run};
use serde_json::Value;

use crate::support::{SOON, connect, publish_raw, shared};

/// Runs `tests/foreign/<script>` and returns its output, or `None` if nats-py is not installed.
async fn python(script: &str, arguments: &[&str]) -> Option<String> {
    let library = services_folder().join("python-nats");
    if !library.join("nats").is_dir() {
        not_run(&current_test(), "nats-py is not installed; run scripts/services");
        return None;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/foreign").join(script);
    let mut command = tokio::process::Command::new("python3");
    command.arg(script).args(arguments).env("PYTHONPATH", library);
    let output = tokio::time::timeout(SOON, command.output()).await.expect("the script exits in time").unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn nats_py_reads_our_messages() {
    let Some(server) = shared().await else { return };
    let broker = connect(&format!("{}?prefix=shop.&partitions=1&source=/shop", server.url())).await;
    let mut headers = Headers::default();
    headers.insert("tenant", "北京 100%").unwrap();
    let messages =
        [keyed("order-7", 1).with_kind(Kind::new("OrderPlaced").unwrap()).with_headers(headers), keyed("order-7", 2)];
    let outcomes = broker.publisher().publish(&messages).await;
    assert!(outcomes.iter().all(Outcome::is_accepted), "{outcomes:?}");

    let Some(printed) = python("read.py", &[&server.url(), "shop=orders", "2"]).await else { return };
    let read: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(read.len(), 2);
    for (message, read) in messages.iter().zip(&read) {
        assert_eq!(read["subject"], "shop.orders.0");
        let header = |name: &str| read["headers"][name].as_str().unwrap().to_owned();
        assert_eq!(header("ce_id"), message.id.to_string());
        assert_eq!(header("Nats-Msg-Id"), message.id.to_string());
        assert_eq!(header("ce_specversion"), "1.0");
        assert_eq!(header("ce_source"), "/shop");
        assert_eq!(header("ce_type"), message.kind.as_str());
        assert_eq!(header("ce_time"), message.time.to_string());
        assert_eq!(header("ce_subject"), "order-7");
        assert_eq!(header("ce_partitionkey"), "order-7");
        assert_eq!(header("ce_sequence"), message.sequence.unwrap().to_string());
    }
    // Percent-encoded, as CloudEvents requires for restricted headers.
    assert_eq!(read[0]["headers"]["tenant"], "%E5%8C%97%E4%BA%AC%20100%25");
    assert_eq!(read[0]["payload"], "b3JkZXItNy8x");
}

#[tokio::test(flavor = "multi_thread")]
async fn nats_py_messages_are_read_and_non_events_rejected() {
    let Some(server) = shared().await else { return };
    let broker = connect(&format!("{}?prefix=theirs.&partitions=1", server.url())).await;
    broker.create_topic(&orders(), None).await.unwrap();
    if python("write.py", &[&server.url(), "theirs.orders.0"]).await.is_none() {
        return;
    }
    let mut subscriber = broker.subscribe(&orders(), &stock()).await.unwrap();
    let mut read = Vec::new();
    while read.len() < 3 {
        let delivery = tokio::time::timeout(SOON, subscriber.next()).await.unwrap().unwrap().unwrap();
        let (message, position, acknowledge) = delivery.into_parts();
        acknowledge.ack().await.unwrap();
        assert_eq!(position.offset, read.len() as u64 + 1);
        read.push(message);
    }
    let plain = read[0].as_ref().unwrap();
    assert_eq!(plain.id.to_string(), "0199b3a0-0000-7000-8000-000000000001");
    assert_eq!((plain.kind.as_str(), plain.sequence), ("OrderPlaced", Some(3)));
    assert_eq!(plain.key.as_ref().unwrap().as_str(), "order-7");
    assert_eq!(plain.time.to_string(), "2026-11-15T08:00:00.000Z");
    assert_eq!((plain.headers.get("tenant"), &plain.payload[..]), (Some("acme"), &br#"{"total": 42}"#[..]));
    let encoded = read[1].as_ref().unwrap();
    assert_eq!((encoded.kind.as_str(), encoded.headers.get("tenant")), ("Order placed", Some("100% 北")));
    assert_eq!(read[2].as_ref().unwrap_err().to_string(), "the event has no ce_id");
}

/// The client drops its connection on headers that it cannot parse, and panics on the last of these.
#[tokio::test(flavor = "multi_thread")]
async fn unreadable_headers_do_not_block_later_messages() {
    let Some(server) = shared().await else { return };
    for (number, line) in ["bad key: x", "no colon", "schl\u{fc}ssel: x", "a: b\rc"].into_iter().enumerate() {
        let headers = format!("NATS/1.0\r\n{line}\r\n\r\n");
        let url = format!("{}?prefix=broken-{number}.&partitions=1&session_timeout=2s&timeout=5s", server.url());
        let broker = connect(&url).await;
        let publish = async |number| {
            let accepted = async || broker.publisher().publish(&[keyed("a", number)]).await[0].is_accepted();
            eventually(SOON, "the message is accepted", accepted).await;
        };
        for number in [1, 2, 3] {
            publish(number).await;
        }
        publish_raw(&server, &format!("broken-{number}.orders.0"), headers.as_bytes(), b"hello").await;
        publish(5).await;

        let mut subscriber = broker.subscribe(&orders(), &stock()).await.unwrap();
        let mut read = BTreeMap::new();
        let mut unacknowledged = Vec::new();
        // Each time the connection breaks, pending requests wait until their timeout.
        let late = tokio::time::Instant::now() + 3 * SOON;
        while !read.contains_key(&5) {
            let next = tokio::time::timeout_at(late, subscriber.next()).await;
            let (message, position, acknowledge) =
                next.expect("all messages are delivered in time").unwrap().unwrap().into_parts();
            // No message is skipped.
            assert!((1..position.offset).all(|before| read.contains_key(&before)), "{position:?} {read:?}");
            // A consumer that acknowledges late still makes progress.
            unacknowledged.push(acknowledge);
            if message.is_err() {
                for one in unacknowledged.drain(..) {
                    // Fails for deliveries from before the connection broke, which are redelivered.
                    let _ = one.ack().await;
                }
            }
            read.insert(position.offset, message.map(|message| message.sequence).map_err(|error| error.to_string()));
        }
        let unreadable = read.remove(&4).unwrap().unwrap_err();
        assert!(unreadable.starts_with("the headers of the message cannot be parsed"), "{unreadable}");
        let expected = [1, 2, 3, 5].map(|number| (number as u64, Ok(Some(number))));
        assert_eq!(read, BTreeMap::from(expected));
        publish(6).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reader_skips_past_unreadable_headers() {
    let Some(server) = shared().await else { return };
    for (number, line) in ["bad key: x", "a: b\rc"].into_iter().enumerate() {
        let url = format!("{}?prefix=inspected-{number}.&partitions=1&timeout=2s", server.url());
        let broker = connect(&url).await;
        let publish = async |number| {
            let accepted = async || broker.publisher().publish(&[keyed("a", number)]).await[0].is_accepted();
            eventually(SOON, "the message is accepted", accepted).await;
        };
        publish(1).await;
        let subject = format!("inspected-{number}.orders.0");
        publish_raw(&server, &subject, format!("NATS/1.0\r\n{line}\r\n\r\n").as_bytes(), b"hello").await;
        publish(3).await;
        let mut reader = None;
        eventually(SOON, "the reader opens", async || {
            reader = broker.read(&orders(), StartAt::Beginning).await.ok();
            reader.is_some()
        })
        .await;
        let (mut reader, mut read) = (reader.unwrap(), Vec::new());
        eventually(SOON, "all messages are read", async || {
            read.extend(reader.read(10).await.unwrap_or_default());
            read.len() == 3
        })
        .await;
        let offsets: Vec<_> = read.iter().map(|stored| stored.position.offset).collect();
        assert_eq!(offsets, [1, 2, 3], "{line:?}");
        let readable: Vec<_> = read.iter().map(|stored| stored.message.is_ok()).collect();
        assert_eq!(readable, [true, false, true], "{line:?}");
    }
}
