//! What no message can be is answered with a sentence, and nothing is written.

use super::support::{Daemon, Place, request};

async fn nothing_was_written(place: &Place) {
    assert_eq!(place.count("SELECT count(*) FROM landfall_outbox").await, 0);
    assert_eq!(place.count("SELECT sum(count) FROM landfall_outbox_published").await, 0);
    let topics = place.run(&["topic", "list", "--json"]).await;
    assert_eq!((topics.code, topics.stdout.as_str()), (0, ""), "{topics:?}");
}

async fn refused(daemon: &Daemon, cases: &[(String, u16, &str)]) {
    for (body, status, word) in cases {
        let sentence = daemon.post("/v1/messages", body).await.problem(*status);
        assert!(sentence.contains(word), "{sentence} lacks {word}");
        assert!(!sentence.contains(['\r', '\n']), "{sentence:?}");
    }
}

#[tokio::test]
async fn a_wrong_message_is_refused_with_a_sentence() {
    let place = Place::new();
    let daemon = place.serve().await;
    let cases = [
        (r#"{"topic":"or ders","payload":1}"#, 400, "only letters, digits"),
        (r#"{"topic":"or\r\nders","payload":1}"#, 400, "contains '\\r'"),
        (r#"{"topic":"..","payload":1}"#, 400, "is reserved"),
        (r#"{"topic":"","payload":1}"#, 400, "is empty"),
        (r#"{"topic":"o","key":"","payload":1}"#, 400, "key"),
        (r#"{"topic":"o","kind":"a\u0000","payload":1}"#, 400, "kind"),
        (r#"{"topic":"o","payload":1,"headers":{"a":"x\r\ny"}}"#, 400, "CR, LF and NUL"),
        (r#"{"topic":"o","payload":1,"headers":{"landfall-x":"y"}}"#, 400, "reserved"),
        (r#"{"topic":"o","payload":1,"headers":{"a":1}}"#, 400, "the field headers is wrong"),
        (r#"{"topic":"o","payload":1,"mode":"thrice"}"#, 400, "at-least-once"),
        (r#"{"topic":"o","payload":1,"paylod":2}"#, 400, "paylod"),
        (r#"{"topic":"o","payload":"#, 400, "not a message"),
        (r#"{"topic":"o"}"#, 400, "payload is missing"),
        ("not json", 400, "JSON object"),
        ("", 400, "JSON object"),
    ];
    refused(&daemon, &cases.map(|(body, status, word)| (body.to_owned(), status, word))).await;
    nothing_was_written(&place).await;
}

#[tokio::test]
async fn a_large_message_is_refused_with_a_sentence() {
    let place = Place::new();
    let daemon = place.serve().await;
    let text = |bytes: usize| format!(r#"{{"topic":"o","payload":"{}"}}"#, "x".repeat(bytes));
    let mebibyte = 1024 * 1024;
    refused(
        &daemon,
        &[
            // Within the body's limit and beyond the payload's, and beyond both.
            (text(mebibyte), 413, "the limit is 1048576"),
            (text(2 * mebibyte), 413, "the body has more than"),
            (text(8 * mebibyte), 413, "the body has more than"),
        ],
    )
    .await;
    nothing_was_written(&place).await;
    // The largest payload there is goes through: the quotes are part of it.
    daemon.send(&text(mebibyte - 2)).await;
}

#[tokio::test]
async fn a_wrong_request_is_refused_with_a_sentence() {
    let place = Place::new();
    let daemon = place.serve().await;
    assert!(daemon.get("/v1/massages").await.problem(404).contains("/v1/massages"));
    let wrong_method = daemon.get("/v1/messages").await;
    assert!(wrong_method.problem(405).contains("GET"));
    assert_eq!(wrong_method.header("allow"), Some("POST"));
    assert!(daemon.post("/metrics", "").await.problem(405).contains("POST"));

    let body = br#"{"topic":"o","payload":1}"#;
    let elsewhere = [("origin", "https://example.com")];
    let answer = request(daemon.address, "POST", "/v1/messages", &elsewhere, body).await;
    assert!(answer.problem(403).contains("another site"));
    nothing_was_written(&place).await;
}

#[tokio::test]
async fn a_body_that_does_not_arrive_is_given_up() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let place = Place::new();
    place.configure("[http]\nrequest_timeout_ms = 100\n");
    let daemon = place.serve().await;
    let mut stream = tokio::net::TcpStream::connect(daemon.address).await.unwrap();
    stream.write_all(b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{").await.unwrap();
    let mut answer = vec![0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, b"HTTP/1.1 408");
}

#[tokio::test]
async fn a_database_that_went_away_is_said_so() {
    let Some(place) = Place::on_own_postgres().await else { return };
    let daemon = place.serve().await;
    place.server().kill_9().await.unwrap();
    let answer = daemon.post("/v1/messages", r#"{"topic":"o","payload":1}"#).await;
    assert!(answer.status == 503 || answer.status == 504, "{answer:?}");
    answer.problem(answer.status);
    assert!(daemon.get("/readyz").await.problem(503).contains("the database does not answer"));
    assert_eq!(daemon.get("/healthz").await.status, 200);
    assert!(daemon.get("/metrics").await.body.contains("landfall_database_up 0"));

    place.server().restart().await.unwrap();
    landfall_testkit::eventually(super::support::PATIENCE, "readiness", async || {
        daemon.get("/readyz").await.status == 200
    })
    .await;
    daemon.send(r#"{"topic":"o","payload":2}"#).await;
}
