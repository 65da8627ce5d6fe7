//! `landfall trace`: a message at every station of its path.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use landfall_testkit::eventually;
use serde_json::{Value, json};

use super::support::{Receiver, Sandbox, TIMEOUT, on_each, response};

async fn trace(sandbox: &Sandbox, arguments: &[&str]) -> Vec<Value> {
    let finished = sandbox.run(&[&["trace", "--json"], arguments].concat()).await;
    if finished.code == 0 { finished.objects() } else { Vec::new() }
}

/// Waits until the message is where `expected` says.
async fn reaches(sandbox: &Sandbox, id: &str, expected: &str) -> Value {
    eventually(TIMEOUT, &format!("the message is {expected}"), async || {
        let found = trace(sandbox, &["--id", id]).await;
        found.first().is_some_and(|path| path["now"].to_string().contains(expected))
    })
    .await;
    trace(sandbox, &["--id", id]).await.remove(0)
}

fn steps(path: &Value) -> Vec<&str> {
    path["steps"].as_array().unwrap().iter().map(|step| step["what"].as_str().unwrap()).collect()
}

on_each! {
    async fn trace_names_every_station_of_a_message(sandbox: &Sandbox) {
        let status = Arc::new(AtomicU16::new(204));
        let answer = status.clone();
        let receiver = Receiver::start(move |_, _| response(answer.load(Ordering::SeqCst), "", "no")).await;
        sandbox.configure(&receiver.subscription("max_attempts = 100"));
        let daemon = sandbox.serve().await;

        let handled = daemon.send(r#"{"topic":"orders","key":"good","payload":1}"#).await;
        let path = reaches(sandbox, &handled, "handled by group mailer").await;
        assert_eq!((&path["id"], &path["topic"], &path["key"]), (&json!(handled), &json!("orders"), &json!("good")));
        assert!(steps(&path).contains(&"stored") && steps(&path).contains(&"handled"), "{path}");
        let people = sandbox.run(&["trace", "--id", &handled]).await.stdout;
        assert!(people.contains("now: handled by group mailer") && people.contains("partition"), "{people}");

        status.store(500, Ordering::SeqCst);
        let retried = daemon.send(r#"{"topic":"orders","key":"down","payload":2}"#).await;
        let path = reaches(sandbox, &retried, "retried in group mailer").await;
        assert!(steps(&path).contains(&"first_failure") && steps(&path).contains(&"next_attempt"), "{path}");
        assert!(!steps(&path).contains(&"handled"), "{path}");

        status.store(400, Ordering::SeqCst);
        let parked = daemon.send(r#"{"topic":"orders","key":"bad","payload":3}"#).await;
        let path = reaches(sandbox, &parked, "parked, dead letter").await;
        assert!(!steps(&path).contains(&"handled"), "a parked message is not handled: {path}");
        let waiting = daemon.send(r#"{"topic":"orders","key":"bad","payload":4}"#).await;
        reaches(sandbox, &waiting, "behind an open one of its key").await;
        let of_key = trace(sandbox, &["--key", "bad"]).await;
        let of_key: Vec<_> = of_key.iter().map(|path| path["id"].clone()).collect();
        assert_eq!(of_key, [json!(parked), json!(waiting)], "oldest first");
        assert_eq!(trace(sandbox, &["--key", "bad", "--limit", "1"]).await[0]["id"], json!(waiting));
        daemon.kill().await;

        let id = "0197b1c2-8f3e-7c11-9d2b-6a5f0c3e9d10";
        let key = sandbox.key();
        let columns = format!("message_id, topic, {key}, payload_text");
        let value = match sandbox.database() {
            "mysql" => format!("UNHEX('{}')", id.replace('-', "")),
            _ => format!("'{id}'"),
        };
        sandbox
            .sql(&format!("INSERT INTO landfall_outbox ({columns}) VALUES ({value}, 'orders', 'new', '5')"))
            .await;
        let path = reaches(sandbox, id, "pending in the outbox").await;
        assert_eq!(steps(&path), ["enqueued"], "{path}");
    }
}

#[tokio::test]
async fn trace_shows_the_state_of_a_half_message() {
    let sandbox = Sandbox::new();
    let daemon = sandbox.serve().await;
    let prepare = async || {
        let half = r#"{"topic": "orders", "key": "k", "payload": 1, "business_type": "order", "business_id": "7",
                       "check_back": {"database": "shop"}, "check_after_s": 3600}"#;
        daemon.post("/v1/half-messages", half).await.json()["id"].as_str().unwrap().to_owned()
    };
    let (kept, discarded) = (prepare().await, prepare().await);
    let path = reaches(&sandbox, &kept, "a half message without a verdict").await;
    assert_eq!((steps(&path), &path["key"]), (vec!["prepared"], &json!("k")));
    for (id, verb) in [(&kept, "commit"), (&discarded, "rollback")] {
        assert_eq!(daemon.post(&format!("/v1/half-messages/{id}/{verb}"), "").await.status, 200);
    }
    let path = reaches(&sandbox, &discarded, "rolled back; it is never published").await;
    assert_eq!(steps(&path), ["prepared", "decided"]);
    let path = reaches(&sandbox, &kept, "in the broker").await;
    assert!(steps(&path).starts_with(&["prepared"]) && steps(&path).contains(&"decided"), "{path}");
    let decided = path["steps"].as_array().unwrap().iter().find(|step| step["what"] == "decided").unwrap();
    assert_eq!(decided["detail"], "committed by sender", "{path}");
}

#[tokio::test]
async fn trace_of_an_unknown_message_fails() {
    let sandbox = Sandbox::new();
    sandbox.run(&["migrate"]).await;
    let unknown = sandbox.run(&["trace", "--id", "0197b1c2-8f3e-7c11-9d2b-6a5f0c3e9d10"]).await;
    assert_eq!(unknown.code, 1);
    assert!(unknown.stderr.contains("no trace of message 0197b1c2"), "{}", unknown.stderr);
    assert!(unknown.stderr.contains("note: the broker is left out"), "a log that does not exist: {}", unknown.stderr);
    let unknown = sandbox.run(&["trace", "--key", "customer-42", "--scan", "0"]).await;
    assert!(unknown.error_line(1).contains("customer-42"), "{}", unknown.stderr);
    assert_eq!(sandbox.run(&["trace"]).await.code, 2, "neither an id nor a key");
}
