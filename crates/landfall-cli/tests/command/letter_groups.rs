//! Failure groups, values in payloads, and redrive jobs from the command.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use landfall_testkit::eventually;
use serde_json::{Value, json};

use super::redrives::receiver;
use super::support::{Daemon, Sandbox, TIMEOUT, on_each, request};

/// More digits than a 64-bit float has.
const ORDER: u64 = 9_007_199_254_740_993;

async fn send(daemon: &Daemon, number: u64) {
    let body = json!({"topic": "orders", "key": format!("k{number}"), "payload": {"order": {"id": ORDER + number}}});
    daemon.send(&body.to_string()).await;
}

async fn list(sandbox: &Sandbox, arguments: &[&str]) -> Vec<Value> {
    sandbox.run(&[&["dlq", "list", "--json"], arguments].concat()).await.objects()
}

async fn groups(sandbox: &Sandbox, state: &str) -> Vec<Value> {
    sandbox.run(&["dlq", "groups", "--state", state, "--json"]).await.objects()
}

/// Blocks a key with the command and another over HTTP, and releases both.
async fn blocked_key_is_skipped(sandbox: &Sandbox, daemon: &Daemon, job: &[&str]) {
    let predictions = async || sandbox.run(&[job, &["--dry-run"]].concat()).await.objects()[0]["predictions"].clone();
    let key = ["--topic", "orders", "--reason", "see INC-42", "--actor", "maria"];
    let blocked = sandbox.run(&[&["dlq", "block", "k0", "--for", "7d", "--json"], &key[..]].concat()).await.objects();
    assert_eq!((&blocked[0]["rule"], &blocked[0]["key"]), (&json!("blocked"), &json!("k0")));
    let rule = json!({"topic": "orders", "key": "k1", "rule": "blocked", "reason": "a test"});
    let set = daemon.post("/v1/key-rules", rule.to_string()).await;
    assert_eq!((set.status, &set.json()["until"]), (200, &json!(null)), "{set:?}");
    assert_eq!(predictions().await, json!({"ready": 2, "blocked": 2}));
    assert_eq!(sandbox.run(&["dlq", "blocked", "--json"]).await.objects().len(), 2);
    assert_eq!(daemon.get("/v1/key-rules").await.json()["items"].as_array().unwrap().len(), 2);

    sandbox.run(&[&["dlq", "unblock", "k0", "--json"], &key[..]].concat()).await.objects();
    let again = sandbox.run(&[&["dlq", "unblock", "k0"], &key[..]].concat()).await;
    assert!(again.code == 1 && again.stderr.contains("has no rule"), "{again:?}");
    let none = json!({"topic": "orders", "key": "k1", "rule": "none", "reason": "a test"});
    assert_eq!(daemon.post("/v1/key-rules", none.to_string()).await.json()["rule"], "none");
    assert_eq!(predictions().await, json!({"ready": 4}));
}

on_each! {
    async fn group_is_resolved_and_regresses_and_is_redriven_by_the_command(sandbox: &Sandbox) {
        let (receiver, healthy) = receiver().await;
        sandbox.configure(&receiver.subscription(""));
        let daemon = sandbox.serve().await;
        for number in 0..3 {
            send(&daemon, number).await;
        }
        eventually(TIMEOUT, "the dead letters", async || list(sandbox, &[]).await.len() == 3).await;

        let open = groups(sandbox, "open").await;
        assert_eq!((open.len(), &open[0]["count"], &open[0]["last_hour"]), (1, &json!(3), &json!(3)), "{open:?}");
        let fingerprint = open[0]["fingerprint"].as_str().unwrap();
        let change = ["dlq", "group", "acknowledge", fingerprint, "--note", "see INC-42", "--actor", "maria", "--json"];
        let changed = sandbox.run(&change).await.objects();
        assert_eq!((&changed[0]["state"], &changed[0]["note"]), (&json!("acknowledged"), &json!("see INC-42")));
        let route = format!("/v1/dead-letter-groups/{fingerprint}");
        let resolved = daemon.post(&route, r#"{"state": "resolved", "actor": "maria"}"#).await;
        assert_eq!((resolved.status, &resolved.json()["state"]), (200, &json!("resolved")), "{resolved:?}");
        assert_eq!(groups(sandbox, "resolved").await[0]["note"], "see INC-42");
        send(&daemon, 3).await;
        eventually(TIMEOUT, "the regression", async || groups(sandbox, "regressed").await.len() == 1).await;
        let audit = sandbox.run(&["dlq", "audit", "--json"]).await.objects();
        let actions: Vec<_> = audit.iter().filter_map(|row| row["action"].as_str()?.strip_prefix("group-")).collect();
        assert_eq!(actions, ["acknowledge", "resolve", "regress"]);

        let path = format!("$.order.id={}", ORDER + 1);
        let found = list(sandbox, &["--path", &path]).await;
        assert_eq!((found.len(), &found[0]["key"]), (1, &json!("k1")), "{found:?}");
        let found = daemon.get(&format!("/v1/dead-letters?path=%24.order.id%3A{}", ORDER + 2)).await.json();
        assert_eq!((&found["items"][0]["key"], &found["matched"]["count"]), (&json!("k2"), &json!(1)));

        let exported = sandbox.run(&["dlq", "export", "--topic", "orders"]).await.objects();
        let ids = exported.iter().map(|line| line["payload"]["order"]["id"].as_u64().unwrap());
        let ids: BTreeSet<_> = ids.collect();
        assert_eq!(ids, (ORDER..ORDER + 4).collect());

        let job = ["dlq", "redrive", "--fingerprint", fingerprint, "--job", "--json"];
        let dry = sandbox.run(&[&job[..], &["--dry-run"]].concat()).await.objects();
        assert_eq!(dry[0]["predictions"], json!({"ready": 4}));
        blocked_key_is_skipped(sandbox, &daemon, &job).await;
        healthy.store(true, Ordering::SeqCst);
        let done = sandbox.run(&[&job[..], &["--lane", "main", "--reason", "it is back"]].concat()).await.objects();
        assert_eq!((&done[0]["state"], &done[0]["succeeded"]), (&json!("finished"), &json!(4)), "{done:?}");
        assert!(list(sandbox, &[]).await.is_empty());
    }
}

/// Whether a letter matches a path tells what is in its payload.
#[tokio::test]
async fn viewer_finds_no_value_in_payloads() {
    let sandbox = Sandbox::new();
    let token = |role: &str| format!("{{ role = \"{role}\", token = \"{role}-0123456789\" }}");
    sandbox.configure(&format!("[auth]\ntokens = [{}, {}]\n", token("viewer"), token("payload-reader")));
    let daemon = sandbox.serve().await;
    for (role, status) in [("viewer", 403), ("payload-reader", 200)] {
        for route in ["/v1/dead-letters", "/v1/dead-letter-groups"] {
            let authorization = format!("Bearer {role}-0123456789");
            let headers = [("authorization", authorization.as_str())];
            let path = format!("{route}?path=%24.card%3A1");
            let response = request(daemon.address, "GET", &path, &headers, b"").await;
            assert_eq!(response.status, status, "{role} {route}: {response:?}");
        }
    }
}
