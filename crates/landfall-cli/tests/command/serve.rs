//! The way of a message through the daemon, and how the daemon starts, stops and is taken over from.

use landfall_testkit::eventually;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::support::{PATIENCE, Place, on_each};

async fn tail(place: &Place, topic: &str) -> Vec<Value> {
    let finished = place.run(&["topic", "tail", topic, "--json"]).await;
    if finished.code == 1 { Vec::new() } else { finished.objects() }
}

async fn arrived(place: &Place, topic: &str, count: usize) -> Vec<Value> {
    eventually(PATIENCE, "the messages in the topic", async || tail(place, topic).await.len() >= count).await;
    tail(place, topic).await
}

on_each! {
    async fn what_is_posted_stands_in_the_topic(place: &Place) {
        let daemon = place.serve().await;
        let id = daemon
            .send(
                r#"{"topic":"orders","key":"k1","kind":"OrderPlaced","sequence":3,"headers":{"tenant":"eu"},
                    "payload":{"total":1.10,"big":12345678901234567890123}}"#,
            )
            .await;

        let lines = arrived(place, "orders", 1).await;
        assert_eq!(lines.len(), 1);
        let line = lines[0].as_object().unwrap();
        let fields: Vec<&str> = line.keys().map(String::as_str).collect();
        // A map of serde_json is sorted; the order on the line has a test of its own.
        let contract = ["headers", "id", "key", "kind", "offset", "partition", "payload", "sequence", "time", "topic"];
        assert_eq!(fields, contract);
        assert_eq!(line["id"], json!(id));
        assert_eq!((&line["topic"], &line["key"]), (&json!("orders"), &json!("k1")));
        assert_eq!(line["kind"], json!("OrderPlaced"));
        assert_eq!((&line["sequence"], &line["headers"]), (&json!(3), &json!({"tenant": "eu"})));
        assert_eq!(line["payload"]["total"], json!(1.10));
        let raw = place.run(&["topic", "tail", "orders", "--json"]).await.stdout;
        assert!(raw.contains(r#""payload":{"total":1.10,"big":12345678901234567890123}"#), "{raw}");

        let people = place.run(&["topic", "tail", "orders"]).await.stdout;
        assert!(people.contains("OrderPlaced") && people.contains("k1"), "{people}");
    }

    async fn a_plain_insert_is_relayed(place: &Place) {
        let _daemon = place.serve().await;
        place.sql(&format!(
            "INSERT INTO landfall_outbox (topic, {}, payload) VALUES ('orders', 'k', {}), ('orders', 'k', {})",
            place.key(),
            place.bytes("{\"n\": 1}"),
            place.bytes("plain text"),
        ))
        .await;
        let lines = arrived(place, "orders", 2).await;
        assert_eq!((&lines[0]["payload"], &lines[1]["payload"]), (&json!({"n": 1}), &json!("plain text")));

        eventually(PATIENCE, "the settled outbox", async || {
            let stats = &place.run(&["outbox", "stats", "--json"]).await.objects()[0];
            stats == &json!({"pending": 0, "oldest_seconds": 0.0, "retrying": 0, "parked": 0, "published": 2})
        })
        .await;
    }

    async fn a_stopped_daemon_leaves_its_leases_to_the_next(place: &Place) {
        // So long that only a lease that was given back can be taken over within this test.
        place.configure("[relay]\nlease_ms = 600000\n");
        let first = place.serve().await;
        first.send(r#"{"topic":"orders","payload":1}"#).await;
        arrived(place, "orders", 1).await;
        let held = "SELECT count(*) FROM landfall_lease WHERE holder IS NOT NULL";
        assert!(place.count(held).await > 0);

        first.signal(Signal::SIGTERM);
        assert_eq!(first.ended().await, Some(0));
        assert_eq!(place.count(held).await, 0);

        let second = place.serve().await;
        second.send(r#"{"topic":"orders","payload":2}"#).await;
        assert_eq!(arrived(place, "orders", 2).await.len(), 2);
        second.signal(Signal::SIGINT);
        assert_eq!(second.ended().await, Some(0));
    }

    async fn a_ready_daemon_says_so_and_shows_its_figures(place: &Place) {
        let daemon = place.serve().await;
        assert_eq!(daemon.get("/healthz").await.status, 200);
        eventually(PATIENCE, "readiness", async || daemon.get("/readyz").await.status == 200).await;
        daemon.send(r#"{"topic":"orders","payload":1}"#).await;
        arrived(place, "orders", 1).await;
        eventually(PATIENCE, "the counter", async || {
            daemon.get("/metrics").await.body.lines().any(|line| line == "landfall_published_total 1")
        })
        .await;
        let answer = daemon.get("/metrics").await;
        assert!(answer.header("content-type").is_some_and(|kind| kind.starts_with("text/plain")));
        for metric in [
            "landfall_outbox_pending ",
            "landfall_outbox_oldest_seconds ",
            "landfall_dlq_size 0",
            "landfall_database_up 1",
            "landfall_delivery_seconds_bucket",
        ] {
            eventually(PATIENCE, metric, async || {
                daemon.get("/metrics").await.body.lines().any(|line| line.starts_with(metric))
            })
            .await;
        }
    }
}

#[tokio::test]
async fn the_ready_line_names_what_is_used_and_no_password() {
    let place = Place::new();
    let daemon = place.serve().await;
    let expected = format!(
        "landfall: ready on http://{} (database sqlite:landfall-data/landfall.db, broker log:landfall-data/log, roles relay)",
        daemon.address
    );
    assert!(daemon.stderr().contains(&expected), "{}", daemon.stderr());
    assert!(place.data().join("landfall.db").is_file());
}

/// Until the daemon waits for the body: it says so when it reads it.
async fn begin_to_post(stream: &mut TcpStream, length: usize) {
    let head = "POST /v1/messages HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: ";
    stream.write_all(format!("{head}{length}\r\n\r\n").as_bytes()).await.unwrap();
    let mut go_on = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
    stream.read_exact(&mut go_on).await.unwrap();
    assert!(go_on.starts_with(b"HTTP/1.1 100"), "{go_on:?}");
}

#[tokio::test]
async fn a_request_in_flight_is_finished_before_the_daemon_stops() {
    let place = Place::new();
    let daemon = place.serve().await;
    let body = r#"{"topic":"orders","payload":1}"#;
    let (first, rest) = body.split_at(10);
    let mut stream = TcpStream::connect(daemon.address).await.unwrap();
    begin_to_post(&mut stream, body.len()).await;
    stream.write_all(first.as_bytes()).await.unwrap();
    daemon.signal(Signal::SIGTERM);
    eventually(PATIENCE, "the daemon to notice", async || daemon.stderr().contains("stopping")).await;
    eventually(PATIENCE, "a closed door", async || TcpStream::connect(daemon.address).await.is_err()).await;

    stream.write_all(rest.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 202"), "{answer}");
    assert_eq!(daemon.ended().await, Some(0));
    let left = place.count("SELECT count(*) FROM landfall_outbox").await;
    assert_eq!(left + tail(&place, "orders").await.len() as i64, 1);
}

#[tokio::test]
async fn a_request_that_never_ends_does_not_keep_the_daemon_from_stopping() {
    let place = Place::new();
    place.configure("[http]\nstop_timeout_ms = 100\n");
    let daemon = place.serve().await;
    let mut stream = TcpStream::connect(daemon.address).await.unwrap();
    begin_to_post(&mut stream, 100).await;
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.ended().await, Some(0));
}

#[tokio::test]
async fn the_second_signal_ends_it_at_once() {
    let place = Place::new();
    place.configure("[http]\nstop_timeout_ms = 600000\n");
    let daemon = place.serve().await;
    let mut stream = TcpStream::connect(daemon.address).await.unwrap();
    begin_to_post(&mut stream, 100).await;
    daemon.signal(Signal::SIGTERM);
    eventually(PATIENCE, "the daemon to notice", async || daemon.stderr().contains("stopping")).await;
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.ended().await, Some(1));
}

#[tokio::test]
async fn the_front_page_and_the_description_are_there() {
    let place = Place::new();
    let daemon = place.serve().await;
    let page = daemon.get("/").await;
    assert_eq!(page.status, 200);
    assert!(page.body.contains("Landfall") && page.body.contains(env!("CARGO_PKG_VERSION")));
    let description = daemon.get("/openapi.json").await.json();
    for (path, methods) in description["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys().filter(|method| *method == "get") {
            let status = daemon.get(path).await.status;
            assert!(status == 200 || status == 503, "{method} {path} answered {status}");
        }
    }
}
