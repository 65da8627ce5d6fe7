//! Channels of alerts, and the state of alerts as the command shows it.

use std::net::SocketAddr;

use landfall_testkit::eventually;
use ring::hmac;
use serde_json::Value;

use super::receiver::Received;
use super::{Sandbox, TIMEOUT};

pub(crate) const WEBHOOK_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Returns the configuration of one channel at `address`, with evaluations ten times a second.
pub(crate) fn channel(kind: &str, address: SocketAddr, lines: &str) -> String {
    format!(
        "[alerts]\ninterval_ms = 100\nlink_base = \"https://landfall.example\"\nallow_private_addresses = true\n\
         [[alert_channel]]\nname = \"ops\"\ntype = \"{kind}\"\nurl = \"http://{address}/send?access_token=robot\"\n\
         timeout_ms = 2000\n{lines}\n"
    )
}

pub(crate) fn webhook(address: SocketAddr) -> String {
    channel("webhook", address, &format!("secret = \"{WEBHOOK_SECRET}\""))
}

/// Records a dead letter of the relay: a header with a line break cannot be published.
pub(crate) async fn record_letter(sandbox: &Sandbox, topic: &str) {
    let payload = sandbox.bytes("1");
    let headers = r#"{"a":"x\ny"}"#.replace('\\', if sandbox.database() == "mysql" { "\\\\" } else { "\\" });
    let insert =
        format!("INSERT INTO landfall_outbox (topic, headers, payload) VALUES ('{topic}', '{headers}', {payload})");
    sandbox.sql(&insert).await;
}

pub(crate) async fn notices(sandbox: &Sandbox, flags: &[&str]) -> Vec<Value> {
    sandbox.run(&[&["alerts", "notices", "--json"], flags].concat()).await.objects()
}

/// Waits until the alert of `rule` about `topic` is in `state`, and returns it.
pub(crate) async fn alert_in(sandbox: &Sandbox, rule: &str, topic: &str, state: &str) -> Value {
    let mut found = None;
    eventually(TIMEOUT, &format!("{rule} of {topic} is {state}"), async || {
        let alerts = sandbox.run(&["alerts", "list", "--json", "--rule", rule]).await.objects();
        found = alerts.into_iter().find(|alert| alert["labels"]["topic"] == topic && alert["state"] == state);
        found.is_some()
    })
    .await;
    found.unwrap()
}

/// Asserts the signature of a webhook, and returns its alerts.
pub(crate) fn verified_alerts(request: &Received) -> Vec<Value> {
    let (id, seconds) = (request.header("webhook-id"), request.header("webhook-timestamp"));
    let secret = base64(WEBHOOK_SECRET.strip_prefix("whsec_").unwrap());
    let key = hmac::Key::new(hmac::HMAC_SHA256, &secret);
    let (version, signature) = request.header("webhook-signature").split_once(',').unwrap();
    assert_eq!(version, "v1");
    hmac::verify(&key, format!("{id}.{seconds}.{}", request.body).as_bytes(), &base64(signature)).unwrap();
    let body: Value = serde_json::from_str(&request.body).unwrap();
    assert_eq!((&body["version"], &body["receiver"]), (&"4".into(), &"ops".into()), "{body}");
    body["alerts"].as_array().unwrap().clone()
}

pub(crate) fn base64(text: &str) -> Vec<u8> {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.decode(text).unwrap()
}

/// Returns the alerts of `rule` about `topic` in requests, as (status, delivery).
pub(crate) fn of_rule(requests: &[Received], rule: &str, topic: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for request in requests {
        for alert in verified_alerts(request) {
            if alert["labels"]["alertname"] == rule && alert["labels"]["topic"] == topic {
                let status = alert["status"].as_str().unwrap().to_owned();
                found.push((status, request.header("webhook-id").to_owned()));
            }
        }
    }
    found
}
