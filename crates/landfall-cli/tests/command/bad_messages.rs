//! Invalid messages and requests are refused with a problem, and nothing is written.

use landfall_testkit::eventually;

use super::support::{Daemon, Sandbox, TIMEOUT, request};

async fn nothing_was_written(sandbox: &Sandbox) {
    assert_eq!(sandbox.count("SELECT count(*) FROM landfall_outbox").await, 0);
    assert_eq!(sandbox.count("SELECT sum(count) FROM landfall_outbox_published").await, 0);
    let topics = sandbox.run(&["topic", "list", "--json"]).await;
    assert_eq!((topics.code, topics.stdout.as_str()), (0, ""), "{topics:?}");
}

async fn refused(daemon: &Daemon, cases: &[(String, u16, &str)]) {
    for (body, status, word) in cases {
        let detail = daemon.post("/v1/messages", body).await.problem(*status);
        assert!(detail.contains(word), "{detail} lacks {word}");
        assert!(!detail.contains(['\r', '\n']), "{detail:?}");
    }
}

#[tokio::test]
async fn invalid_message_is_refused() {
    let sandbox = Sandbox::new();
    let daemon = sandbox.serve().await;
    let cases = [
        (r#"{"topic":"or ders","payload":1}"#, 400, "only letters, digits"),
        (r#"{"topic":"or\r\nders","payload":1}"#, 400, "contains '\\r'"),
        (r#"{"topic":"..","payload":1}"#, 400, "is reserved"),
        (r#"{"topic":"","payload":1}"#, 400, "is empty"),
        (r#"{"topic":"o","key":"","payload":1}"#, 400, "key"),
        (r#"{"topic":"o","kind":"a\u0000","payload":1}"#, 400, "kind"),
        (r#"{"topic":"o","payload":1,"headers":{"a":"x\r\ny"}}"#, 400, "CR, LF and NUL"),
        (r#"{"topic":"o","payload":1,"headers":{"landfall-x":"y"}}"#, 400, "reserved"),
        (r#"{"topic":"o","payload":1,"headers":{"a":1}}"#, 400, "the field headers is invalid"),
        (r#"{"topic":"o","payload":1,"headers":{"a":"1","a":"2"}}"#, 400, "is repeated"),
        (r#"{"topic":"o","payload":1,"sequence":-1}"#, 400, "negative"),
        (r#"{"topic":"o","payload":1,"mode":"thrice"}"#, 400, "at-least-once"),
        (r#"{"topic":"o","payload":1,"paylod":2}"#, 400, "paylod"),
        (r#"{"topic":"o","payload":"#, 400, "not a message"),
        (r#"{"topic":"o"}"#, 400, "payload is missing"),
        ("not json", 400, "JSON object"),
        ("", 400, "JSON object"),
    ];
    refused(&daemon, &cases.map(|(body, status, word)| (body.to_owned(), status, word))).await;
    nothing_was_written(&sandbox).await;
}

#[tokio::test]
async fn row_with_negative_sequence_or_repeated_header_is_parked() {
    let sandbox = Sandbox::new();
    let _daemon = sandbox.serve().await;
    sandbox
        .sql(
            r#"INSERT INTO landfall_outbox (topic, sequence, headers, payload) VALUES
               ('o', -1, '{}', x'31'), ('o', 1, '{"a":"1","a":"2"}', x'32')"#,
        )
        .await;
    let letters = async || sandbox.run(&["dlq", "list", "--json"]).await.objects();
    eventually(TIMEOUT, "both are parked", async || letters().await.len() == 2).await;
    assert!(letters().await.iter().all(|letter| letter["error_code"] == "VALIDATION_ERROR"));
}

#[tokio::test]
async fn oversized_message_is_refused() {
    let sandbox = Sandbox::new();
    let daemon = sandbox.serve().await;
    let text = |bytes: usize| format!(r#"{{"topic":"o","payload":"{}"}}"#, "x".repeat(bytes));
    let mebibyte = 1024 * 1024;
    refused(
        &daemon,
        &[
            // Over the payload limit but within the body limit; then over both.
            (text(mebibyte), 413, "the limit is 1048576"),
            (text(2 * mebibyte), 413, "the body has more than"),
            (text(8 * mebibyte), 413, "the body has more than"),
        ],
    )
    .await;
    nothing_was_written(&sandbox).await;
    // A payload of exactly the limit is accepted; the quotes are part of it.
    daemon.send(&text(mebibyte - 2)).await;
}

#[tokio::test]
async fn invalid_request_is_refused() {
    let sandbox = Sandbox::new();
    let daemon = sandbox.serve().await;
    assert!(daemon.get("/v1/massages").await.problem(404).contains("/v1/massages"));
    let wrong_method = daemon.get("/v1/messages").await;
    assert!(wrong_method.problem(405).contains("GET"));
    assert_eq!(wrong_method.header("allow"), Some("POST"));
    assert!(daemon.post("/metrics", "").await.problem(405).contains("POST"));

    let body = br#"{"topic":"o","payload":1}"#;
    let elsewhere = [("origin", "https://example.com")];
    let response = request(daemon.address, "POST", "/v1/messages", &elsewhere, body).await;
    assert!(response.problem(403).contains("another site"));
    nothing_was_written(&sandbox).await;
}

#[tokio::test]
async fn browser_on_another_site_is_refused_on_every_route() {
    let sandbox = Sandbox::new();
    let daemon = sandbox.serve().await;
    let here = format!("http://{}", daemon.address);
    for (method, path) in [("GET", "/metrics"), ("GET", "/"), ("GET", "/openapi.json"), ("POST", "/v1/messages")] {
        // A site whose name resolves to a loopback address: the browser sends its name as Host.
        let rebound = request(daemon.address, method, path, &[("host", "evil.example")], b"{}").await;
        assert!(rebound.problem(403).contains("loopback"), "{method} {path}");
        for (name, value) in [("sec-fetch-site", "cross-site"), ("origin", "null"), ("origin", "http://evil.example")] {
            request(daemon.address, method, path, &[(name, value)], b"{}").await.problem(403);
        }
    }
    let own = [("origin", here.as_str()), ("sec-fetch-site", "same-origin")];
    assert_eq!(request(daemon.address, "GET", "/metrics", &own, b"").await.status, 200);
    nothing_was_written(&sandbox).await;
}

#[tokio::test]
async fn slow_body_times_out() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let sandbox = Sandbox::new();
    sandbox.configure("[http]\nrequest_timeout_ms = 100\n");
    let daemon = sandbox.serve().await;
    let mut stream = tokio::net::TcpStream::connect(daemon.address).await.unwrap();
    stream.write_all(b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{").await.unwrap();
    let mut response = vec![0; 12];
    stream.read_exact(&mut response).await.unwrap();
    assert_eq!(response, b"HTTP/1.1 408");
}

#[tokio::test]
async fn database_outage_is_reported_and_recovers() {
    let Some(sandbox) = Sandbox::on_own_postgres().await else { return };
    let daemon = sandbox.serve().await;
    sandbox.server().kill_9().await.unwrap();
    let response = daemon.post("/v1/messages", r#"{"topic":"o","payload":1}"#).await;
    assert!(response.status == 503 || response.status == 504, "{response:?}");
    response.problem(response.status);
    assert!(daemon.get("/readyz").await.problem(503).contains("the database is unavailable"));
    assert_eq!(daemon.get("/healthz").await.status, 200);
    assert!(daemon.get("/metrics").await.body.contains("landfall_database_up 0"));

    sandbox.server().restart().await.unwrap();
    eventually(TIMEOUT, "readiness", async || daemon.get("/readyz").await.status == 200).await;
    daemon.send(r#"{"topic":"o","payload":2}"#).await;
}
