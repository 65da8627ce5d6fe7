//! Rehearsals of a subscription: the receiver predicts its answer at an endpoint of its own.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::redrives::park;
use super::support::{Daemon, Receiver, Sandbox, on_each, request, response};

/// Rejects messages, and rehearsals until it is repaired.
async fn receiver() -> (Receiver, Arc<AtomicBool>) {
    let repaired = Arc::new(AtomicBool::new(false));
    let known = repaired.clone();
    let receiver = Receiver::start(move |_, request| {
        let is_rehearsal = request.header("landfall-rehearsal") == "true";
        match is_rehearsal && known.load(Ordering::SeqCst) {
            true => response(200, "", ""),
            false => response(422, "", "no"),
        }
    });
    (receiver.await, repaired)
}

async fn post(daemon: &Daemon, path: &str, body: &Value) -> Value {
    let headers = [("content-type", "application/json")];
    let response = request(daemon.address, "POST", path, &headers, body.to_string().as_bytes()).await;
    assert_eq!(response.status, 200, "{response:?}");
    response.json()
}

/// The id of the only parked letter of a key.
async fn parked(daemon: &Daemon, key: &str) -> i64 {
    let page = daemon.get(&format!("/v1/dead-letters?status=parked&key={key}")).await.json();
    page["items"][0]["id"].as_i64().unwrap()
}

fn rehearsals(receiver: &Receiver) -> usize {
    let requests = receiver.requests();
    requests.iter().filter(|request| request.header("request-line").starts_with("POST /rehearse ")).count()
}

on_each! {
    async fn receiver_predicts_what_a_redrive_would_do(sandbox: &Sandbox) {
        let (receiver, repaired) = receiver().await;
        let lines = format!("rehearse_url = \"http://{}/rehearse\"", receiver.address);
        sandbox.configure(&receiver.subscription(&lines));
        let daemon = sandbox.serve().await;
        park(&daemon, 2).await;
        let (one, other) = (parked(&daemon, "k0").await, parked(&daemon, "k1").await);
        let path = format!("/v1/dead-letters/{one}/rehearse");

        // Without `run` nothing is sent.
        let shown = post(&daemon, &path, &json!({})).await;
        assert_eq!((&shown["prediction"], &shown["handler"]), (&json!("ready"), &Value::Null));
        assert_eq!(rehearsals(&receiver), 0);

        let shown = post(&daemon, &path, &json!({"run": true, "actor": "maria"})).await;
        assert_eq!(shown["handler"]["outcome"], "fails", "{shown}");
        assert_eq!(shown["handler"]["error_code"], "UPSTREAM_4XX", "{shown}");
        assert_eq!(rehearsals(&receiver), 1);

        repaired.store(true, Ordering::SeqCst);
        let body = json!({"filter": {"group": "mailer"}, "dry_run": true, "run": 10});
        let shown = post(&daemon, "/v1/redrives", &body).await;
        let handlers = shown["handlers"].as_array().unwrap();
        let ids: Vec<_> = handlers.iter().map(|run| (run["id"].as_i64().unwrap(), run["outcome"].as_str())).collect();
        let both = [one.min(other), one.max(other)];
        assert_eq!(ids, both.map(|id| (id, Some("succeeds"))), "{shown}");

        // Each rehearsal of a letter is the same message, and nothing was redriven.
        let sent = receiver.requests().into_iter().filter(|request| request.header("landfall-rehearsal") == "true");
        let ids: BTreeSet<_> = sent.map(|request| request.header("idempotency-key").to_owned()).collect();
        assert_eq!(ids.len(), 2);
        assert_eq!((parked(&daemon, "k0").await, parked(&daemon, "k1").await), (one, other));

        let id = one.to_string();
        let run = ["dlq", "rehearse", "--id", &id, "--run", "--json"];
        let finished = sandbox.run(&run).await;
        assert_eq!(finished.code, 0, "{finished:?}");
        let line: Value = serde_json::from_str(&finished.stdout).unwrap();
        assert_eq!((&line["prediction"], &line["handler"]["outcome"]), (&json!("ready"), &json!("succeeds")));
        let finished = sandbox.run(&["dlq", "rehearse", "--topic", "orders"]).await;
        assert_eq!(finished.stdout, format!("{} ready\n{} ready\n", both[0], both[1]), "{finished:?}");
        assert_eq!(sandbox.run(&["dlq", "rehearse"]).await.code, 2, "without a filter");
    }
}

#[tokio::test]
async fn rehearsal_without_an_endpoint_is_unanswered() {
    let sandbox = Sandbox::new();
    let (receiver, _) = receiver().await;
    sandbox.configure(&receiver.subscription(""));
    let daemon = sandbox.serve().await;
    park(&daemon, 1).await;
    let before = receiver.requests().len();
    let path = format!("/v1/dead-letters/{}/rehearse", parked(&daemon, "k0").await);
    let shown = post(&daemon, &path, &json!({"run": true, "wait_s": 1})).await;
    assert_eq!(shown["handler"]["outcome"], "unanswered", "{shown}");
    assert_eq!(receiver.requests().len(), before, "the receiver must not see a rehearsal at its URL");
    for wrong in [json!({"run": true, "wait_s": 0}), json!({"run": 1}), json!({"run": true, "wait_s": 61})] {
        let headers = [("content-type", "application/json")];
        let response = request(daemon.address, "POST", &path, &headers, wrong.to_string().as_bytes()).await;
        assert_eq!(response.status, 400, "{wrong}: {response:?}");
    }
    // A request for handlers is no redrive.
    let shown = post(&daemon, "/v1/redrives", &json!({"filter": {"group": "mailer"}, "run": 1, "wait_s": 1})).await;
    assert_eq!((&shown["state"], &shown["handlers"][0]["outcome"]), (&json!("dry-run"), &json!("unanswered")));
}
