//! Fake servers of Slack and DingTalk that verify what they get and answer with their real codes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use landfall_testkit::eventually;
use ring::hmac;
use serde_json::{Value, json};

use super::support::{
    Received, Receiver, Sandbox, TIMEOUT, alert_in, base64, channel, notices, record_letter, response,
};

const DING_SECRET: &str = "SEC0123456789abcdef";

/// Checks a message as Slack does, and returns the error of its answer.
fn slack_error(request: &Received) -> Option<&'static str> {
    let Ok(body) = serde_json::from_str::<Value>(&request.body) else { return Some("invalid_payload") };
    let Some(blocks) = body["blocks"].as_array().filter(|blocks| (1..=50).contains(&blocks.len())) else {
        return Some("invalid_blocks");
    };
    let is_valid = |block: &Value| match block["type"].as_str() {
        Some("section") => {
            block["text"]["text"].as_str().is_some_and(|text| (1..=3000).contains(&text.chars().count()))
        }
        Some("context") => block["elements"].as_array().is_some_and(|elements| (1..=10).contains(&elements.len())),
        _ => false,
    };
    let has_text = body["text"].as_str().is_some_and(|text| !text.is_empty());
    (!has_text || !blocks.iter().all(is_valid)).then_some("invalid_blocks")
}

/// The text of a message to Slack.
fn slack_text(request: &Received) -> String {
    let body: Value = serde_json::from_str(&request.body).unwrap();
    let blocks = body["blocks"].as_array().unwrap().iter();
    blocks.map(|block| block["text"]["text"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>().join("\n")
}

/// Checks a message as DingTalk's robot does, and returns the code of its answer.
fn ding_code(request: &Received) -> i64 {
    let target = request.header("request-line").split(' ').nth(1).unwrap().to_owned();
    let query = target.split_once('?').map_or("", |(_, query)| query);
    let query: BTreeMap<String, String> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    if query.get("access_token").map(String::as_str) != Some("robot") {
        return 300_001;
    }
    let (Some(timestamp), Some(sign)) = (query.get("timestamp"), query.get("sign")) else { return 310_000 };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    let is_recent = timestamp.parse::<u128>().is_ok_and(|time| now.abs_diff(time) < 3_600_000);
    let key = hmac::Key::new(hmac::HMAC_SHA256, DING_SECRET.as_bytes());
    let is_signed = hmac::verify(&key, format!("{timestamp}\n{DING_SECRET}").as_bytes(), &base64(sign)).is_ok();
    let body: Value = serde_json::from_str(&request.body).unwrap_or_default();
    let text = body["markdown"]["text"].as_str().unwrap_or_default();
    let has_body = body["msgtype"] == "markdown" && body["markdown"]["title"].is_string() && text.len() < 20_000;
    if is_recent && is_signed && has_body && text.contains("landfall") { 0 } else { 310_000 }
}

fn ding(code: i64) -> Option<Vec<u8>> {
    let message = if code == 0 { "ok" } else { "refused" };
    response(200, "content-type: application/json\r\n", &json!({ "errcode": code, "errmsg": message }).to_string())
}

/// A script that notes when each request came.
type Times = Arc<Mutex<Vec<Instant>>>;

#[tokio::test]
async fn slack_gets_valid_messages_within_its_limits() {
    let (sandbox, times) = (Sandbox::new(), Times::default());
    let noted = times.clone();
    let slack = Receiver::start(move |number, request| {
        noted.lock().unwrap().push(Instant::now());
        match (slack_error(request), number) {
            (Some(error), _) => response(400, "", error),
            (None, 0) => response(429, "retry-after: 3\r\n", "rate_limited"),
            (None, 1) => response(500, "", "rollup_error"),
            (None, _) => response(200, "", "ok"),
        }
    })
    .await;
    sandbox.configure(&channel("slack", slack.address, ""));
    let daemon = sandbox.serve().await;
    for number in 0..30 {
        record_letter(&sandbox, &format!("orders{number}")).await;
        alert_in(&sandbox, "dead-letter", &format!("orders{number}"), "firing").await;
    }
    eventually(TIMEOUT, "everything is delivered", async || {
        notices(&sandbox, &["--state", "waiting"]).await.is_empty()
    })
    .await;
    let log = notices(&sandbox, &["--limit", "1000"]).await;
    assert!(log.iter().all(|notice| notice["state"] == "delivered"), "{log:?}");

    let times = times.lock().unwrap().clone();
    let gaps: Vec<Duration> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps[0] >= Duration::from_millis(2900), "Retry-After is honoured: {gaps:?}");
    // The request takes a moment to arrive.
    assert!(gaps.iter().all(|gap| *gap >= Duration::from_millis(900)), "one message a second: {gaps:?}");
    let texts: Vec<String> = slack.requests()[2..].iter().map(slack_text).collect();
    for number in 0..30 {
        let told =
            texts.iter().filter(|text| text.contains(&format!("of topic orders{number} (relay) is parked"))).count();
        assert_eq!(told, 1, "orders{number}: {texts:?}");
    }
    assert!(texts.iter().any(|text| text.contains("<https://landfall.example/console/messages/")), "{texts:?}");
    let requests = slack.requests();
    let first = &requests[0].body;
    let repeated = requests.iter().filter(|request| request.body == *first).count();
    assert_eq!(repeated, 3, "a delivery is repeated as it was");
    daemon.kill().await;
}

#[tokio::test]
async fn dingtalk_verifies_the_signature_and_its_rest_is_kept() {
    let sandbox = Sandbox::new();
    let robot = Receiver::start(|number, request| match (ding_code(request), number) {
        (0, 0) => response(503, "", "busy"),
        (0, 1) => ding(130_101),
        (code, _) => ding(code),
    })
    .await;
    let lines = format!("secret = \"{DING_SECRET}\"\nkeyword = \"landfall\"");
    sandbox.configure(&channel("dingtalk", robot.address, &lines));
    let daemon = sandbox.serve().await;
    record_letter(&sandbox, "orders").await;
    eventually(TIMEOUT, "the robot wants a rest", async || {
        let waiting = notices(&sandbox, &["--state", "waiting"]).await;
        waiting.iter().any(|notice| notice["error"].as_str().is_some_and(|error| error.contains("130101")))
    })
    .await;
    // Also other notices wait.
    record_letter(&sandbox, "other").await;
    alert_in(&sandbox, "dead-letter", "other", "firing").await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(robot.requests().len(), 2, "a request during the rest would prolong it");

    // Ten minutes later.
    sandbox.sql("UPDATE landfall_alert_notice SET hold_until = 0, next_at = 0 WHERE state = 'waiting'").await;
    eventually(TIMEOUT, "everything is delivered", async || {
        notices(&sandbox, &["--state", "waiting"]).await.is_empty()
    })
    .await;
    let log = notices(&sandbox, &[]).await;
    assert!(log.iter().all(|notice| notice["state"] == "delivered"), "{log:?}");
    let texts: Vec<String> = robot.requests().iter().map(|request| request.body.clone()).collect();
    assert!(texts.iter().any(|text| text.contains("https://landfall.example/console/messages/")), "{texts:?}");
    daemon.kill().await;
}

#[tokio::test]
async fn dingtalk_with_a_wrong_secret_is_given_up_loudly() {
    let sandbox = Sandbox::new();
    let robot = Receiver::start(|_, request| ding(ding_code(request))).await;
    sandbox.configure(&channel("dingtalk", robot.address, "secret = \"SECwrong\"\nkeyword = \"landfall\""));
    let tested = sandbox.run(&["alerts", "test", "ops"]).await;
    let error = tested.error_line(1);
    assert!(error.contains("the robot refuses the signature; check the secret") && error.contains("310000"), "{error}");
    let daemon = sandbox.serve().await;
    record_letter(&sandbox, "orders").await;
    eventually(TIMEOUT, "it is given up", async || {
        let given_up = notices(&sandbox, &["--state", "given_up"]).await;
        given_up.iter().any(|notice| notice["rule"] == "dead-letter" && notice["attempts"] == 1)
    })
    .await;
    let stderr = daemon.stderr();
    assert!(stderr.contains("notice of an alert given up") && stderr.contains("check the secret"), "{stderr}");
    let metrics = daemon.get("/metrics").await.body;
    assert!(metrics.contains(r#"landfall_alert_notices_total{channel="ops",outcome="given_up"}"#), "{metrics}");
    daemon.kill().await;
}

/// The fakes themselves: each refuses what its real server refuses.
#[test]
fn planted_messages_are_refused_by_the_fakes() {
    let request = |line: &str, body: Value| Received {
        headers: [("request-line".to_owned(), format!("POST {line} HTTP/1.1"))].into(),
        body: body.to_string(),
    };
    let section = |text: String| json!({ "text": "x", "blocks": [{ "type": "section", "text": { "text": text } }] });
    assert_eq!(slack_error(&request("/", section("x".into()))), None);
    assert_eq!(slack_error(&request("/", section("x".repeat(3001)))), Some("invalid_blocks"));
    assert_eq!(slack_error(&request("/", json!({ "text": "x", "blocks": [] }))), Some("invalid_blocks"));

    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    let body = json!({ "msgtype": "markdown", "markdown": { "title": "t", "text": "landfall" } });
    let code = |time: u128, secret: &str, body: &Value| {
        use base64::Engine;
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let sign = hmac::sign(&key, format!("{time}\n{secret}").as_bytes());
        let sign = base64::engine::general_purpose::STANDARD.encode(sign.as_ref());
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("access_token", "robot")
            .append_pair("timestamp", &time.to_string())
            .append_pair("sign", &sign)
            .finish();
        ding_code(&request(&format!("/send?{query}"), body.clone()))
    };
    assert_eq!(code(now, DING_SECRET, &body), 0);
    assert_eq!(code(now, "another", &body), 310_000);
    assert_eq!(code(now - 7_200_000, DING_SECRET, &body), 310_000, "an old signature");
    assert_eq!(code(now / 1000, DING_SECRET, &body), 310_000, "seconds in place of milliseconds");
    assert_eq!(code(now, DING_SECRET, &json!({ "msgtype": "text" })), 310_000);
    assert_eq!(ding_code(&request("/send?access_token=other", body)), 300_001);
}
