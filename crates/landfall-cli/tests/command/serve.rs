//! The path of a message through the daemon, and the daemon's start, shutdown and takeover.

use landfall_testkit::eventually;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::support::{Sandbox, TIMEOUT, on_each};

async fn tail(sandbox: &Sandbox, topic: &str) -> Vec<Value> {
    let finished = sandbox.run(&["topic", "tail", topic, "--json"]).await;
    if finished.code == 1 { Vec::new() } else { finished.objects() }
}

async fn arrived(sandbox: &Sandbox, topic: &str, count: usize) -> Vec<Value> {
    eventually(TIMEOUT, "the messages in the topic", async || tail(sandbox, topic).await.len() >= count).await;
    tail(sandbox, topic).await
}

on_each! {
    async fn posted_message_reaches_the_topic(sandbox: &Sandbox) {
        let daemon = sandbox.serve().await;
        let id = daemon
            .send(
                r#"{"topic":"orders","key":"k1","kind":"OrderPlaced","sequence":3,"headers":{"tenant":"eu"},
                    "payload":{"total":1.10,"big":12345678901234567890123}}"#,
            )
            .await;

        let lines = arrived(sandbox, "orders", 1).await;
        assert_eq!(lines.len(), 1);
        let line = lines[0].as_object().unwrap();
        let fields: Vec<&str> = line.keys().map(String::as_str).collect();
        // serde_json sorts its maps; a unit test of the command checks the order on the line.
        let contract = ["headers", "id", "key", "kind", "offset", "partition", "payload", "sequence", "time", "topic"];
        assert_eq!(fields, contract);
        assert_eq!(line["id"], json!(id));
        assert_eq!((&line["topic"], &line["key"]), (&json!("orders"), &json!("k1")));
        assert_eq!(line["kind"], json!("OrderPlaced"));
        assert_eq!((&line["sequence"], &line["headers"]), (&json!(3), &json!({"tenant": "eu"})));
        assert_eq!(line["payload"]["total"], json!(1.10));
        let raw = sandbox.run(&["topic", "tail", "orders", "--json"]).await.stdout;
        assert!(raw.contains(r#""payload":{"total":1.10,"big":12345678901234567890123}"#), "{raw}");

        let people = sandbox.run(&["topic", "tail", "orders"]).await.stdout;
        assert!(people.contains("OrderPlaced") && people.contains("k1"), "{people}");
    }

    async fn plain_sql_insert_is_relayed(sandbox: &Sandbox) {
        let _daemon = sandbox.serve().await;
        sandbox.sql(&format!(
            "INSERT INTO landfall_outbox (topic, {}, payload) VALUES ('orders', 'k', {}), ('orders', 'k', {})",
            sandbox.key(),
            sandbox.bytes("{\"n\": 1}"),
            sandbox.bytes("plain text"),
        ))
        .await;
        let lines = arrived(sandbox, "orders", 2).await;
        assert_eq!((&lines[0]["payload"], &lines[1]["payload"]), (&json!({"n": 1}), &json!("plain text")));

        eventually(TIMEOUT, "the settled outbox", async || {
            let stats = &sandbox.run(&["outbox", "stats", "--json"]).await.objects()[0];
            stats == &json!({"pending": 0, "oldest_seconds": 0.0, "retrying": 0, "parked": 0, "published": 2})
        })
        .await;
    }

    async fn stopped_daemon_releases_its_leases(sandbox: &Sandbox) {
        // So long that the second daemon can only take over released leases within this test.
        sandbox.configure("[relay]\nlease_ms = 600000\n");
        let first = sandbox.serve().await;
        first.send(r#"{"topic":"orders","payload":1}"#).await;
        arrived(sandbox, "orders", 1).await;
        let held = "SELECT count(*) FROM landfall_lease WHERE holder IS NOT NULL";
        assert!(sandbox.count(held).await > 0);

        first.signal(Signal::SIGTERM);
        assert_eq!(first.exit_code().await, Some(0));
        assert_eq!(sandbox.count(held).await, 0);

        let second = sandbox.serve().await;
        second.send(r#"{"topic":"orders","payload":2}"#).await;
        assert_eq!(arrived(sandbox, "orders", 2).await.len(), 2);
        second.signal(Signal::SIGINT);
        assert_eq!(second.exit_code().await, Some(0));
    }

    async fn ready_daemon_reports_readiness_and_metrics(sandbox: &Sandbox) {
        let daemon = sandbox.serve().await;
        assert_eq!(daemon.get("/healthz").await.status, 200);
        eventually(TIMEOUT, "readiness", async || daemon.get("/readyz").await.status == 200).await;
        daemon.send(r#"{"topic":"orders","payload":1}"#).await;
        arrived(sandbox, "orders", 1).await;
        eventually(TIMEOUT, "the counter", async || {
            daemon.get("/metrics").await.body.lines().any(|line| line == "landfall_published_total 1")
        })
        .await;
        let response = daemon.get("/metrics").await;
        assert!(response.header("content-type").is_some_and(|kind| kind.starts_with("text/plain")));
        for metric in [
            "landfall_outbox_pending ",
            "landfall_outbox_oldest_seconds ",
            "landfall_database_up 1",
            "landfall_delivery_seconds_bucket",
        ] {
            eventually(TIMEOUT, metric, async || {
                daemon.get("/metrics").await.body.lines().any(|line| line.starts_with(metric))
            })
            .await;
        }
    }
}

#[tokio::test]
async fn ready_line_names_database_broker_and_roles() {
    let sandbox = Sandbox::new();
    let daemon = sandbox.serve().await;
    let expected = format!(
        "landfall: ready on http://{} (database sqlite:landfall-data/landfall.db, broker log:landfall-data/log, \
         roles relay, check-back, console)",
        daemon.address
    );
    assert!(daemon.stderr().contains(&expected), "{}", daemon.stderr());
    assert!(sandbox.data().join("landfall.db").is_file());
}

/// Sends the head of a request and waits for `100 Continue`, which the daemon sends when it reads the body.
async fn begin_post(stream: &mut TcpStream, length: usize) {
    let head = "POST /v1/messages HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: ";
    stream.write_all(format!("{head}{length}\r\n\r\n").as_bytes()).await.unwrap();
    let mut interim = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
    stream.read_exact(&mut interim).await.unwrap();
    assert!(interim.starts_with(b"HTTP/1.1 100"), "{interim:?}");
}

#[tokio::test]
async fn in_flight_request_finishes_before_shutdown() {
    let sandbox = Sandbox::new();
    let daemon = sandbox.serve().await;
    let body = r#"{"topic":"orders","payload":1}"#;
    let (first, rest) = body.split_at(10);
    let mut stream = TcpStream::connect(daemon.address).await.unwrap();
    begin_post(&mut stream, body.len()).await;
    stream.write_all(first.as_bytes()).await.unwrap();
    daemon.signal(Signal::SIGTERM);
    eventually(TIMEOUT, "the daemon to notice", async || daemon.stderr().contains("stopping")).await;
    eventually(TIMEOUT, "a closed listener", async || TcpStream::connect(daemon.address).await.is_err()).await;

    stream.write_all(rest.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 202"), "{response}");
    assert_eq!(daemon.exit_code().await, Some(0));
    let left = sandbox.count("SELECT count(*) FROM landfall_outbox").await;
    assert_eq!(left + tail(&sandbox, "orders").await.len() as i64, 1);
}

#[tokio::test]
async fn stalled_request_does_not_block_shutdown() {
    let sandbox = Sandbox::new();
    sandbox.configure("[http]\nstop_timeout_ms = 100\n");
    let daemon = sandbox.serve().await;
    let mut stream = TcpStream::connect(daemon.address).await.unwrap();
    begin_post(&mut stream, 100).await;
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.exit_code().await, Some(0));
}

#[tokio::test]
async fn second_signal_exits_at_once() {
    let sandbox = Sandbox::new();
    sandbox.configure("[http]\nstop_timeout_ms = 600000\n");
    let daemon = sandbox.serve().await;
    let mut stream = TcpStream::connect(daemon.address).await.unwrap();
    begin_post(&mut stream, 100).await;
    daemon.signal(Signal::SIGTERM);
    eventually(TIMEOUT, "the daemon to notice", async || daemon.stderr().contains("stopping")).await;
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.exit_code().await, Some(1));
}

#[tokio::test]
async fn front_page_and_openapi_routes_respond() {
    let sandbox = Sandbox::new();
    let daemon = sandbox.serve().await;
    let page = daemon.get("/").await;
    assert_eq!(page.status, 200);
    assert!(page.body.contains("Landfall") && page.body.contains(env!("CARGO_PKG_VERSION")));
    let description = daemon.get("/openapi.json").await.json();
    for (path, methods) in description["paths"].as_object().unwrap() {
        let methods = methods.as_object().unwrap().keys();
        for method in methods.filter(|method| *method == "get" && !path.contains('{')) {
            let status = daemon.get(path).await.status;
            assert!(status == 200 || status == 503, "{method} {path} answered {status}");
        }
    }
}
