//! Idempotency records and one-time tokens over HTTP, for services in any language.

use landfall_testkit::eventually;
use serde_json::{Value, json};

use super::support::{Daemon, Response, Sandbox, TIMEOUT, on_each};

fn key(name: &str) -> Value {
    json!({"scope": "tenant-7", "business_type": "payment", "key": name})
}

/// Returns `base` with the fields of `more`.
fn with(mut base: Value, more: Value) -> Value {
    base.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    base
}

async fn call(daemon: &Daemon, action: &str, body: Value) -> Response {
    daemon.post(&format!("/v1/idempotency/{action}"), body.to_string()).await
}

/// Claims a key that must be free, and returns the epoch.
async fn claimed(daemon: &Daemon, body: Value) -> i64 {
    let response = call(daemon, "claim", body).await;
    assert_eq!((response.status, &response.json()["state"]), (200, &json!("claimed")), "{response:?}");
    response.json()["epoch"].as_i64().unwrap()
}

fn refused(response: &Response, status: u16, name: &str) {
    assert_eq!(response.status, status, "{response:?}");
    assert_eq!(response.json()["type"], json!(format!("urn:landfall:problem:{name}")), "{response:?}");
}

/// A second daemon on the same database. The first one has the log.
async fn second(sandbox: &Sandbox) -> Daemon {
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--roles", "push", "--broker-url", "log:./second-log"];
    Daemon::start(sandbox.command(&arguments)).await
}

on_each! {
    async fn claimed_key_runs_once_and_replays_its_response(sandbox: &Sandbox) {
        let daemon = sandbox.serve_as("push").await;
        let body = with(key("order-1"), json!({"fingerprint": "10 EUR"}));
        let epoch = claimed(&daemon, body.clone()).await;
        let waiting = call(&daemon, "claim", body.clone()).await;
        refused(&waiting, 409, "in-flight");
        let retry_after: u64 = waiting.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=30).contains(&retry_after), "{retry_after}");
        for other in [json!({"fingerprint": "11 EUR"}), json!({"fingerprint": null})] {
            refused(&call(&daemon, "claim", with(key("order-1"), other)).await, 422, "different-request");
        }
        let renewed = call(&daemon, "renew", with(key("order-1"), json!({"epoch": epoch, "lease_s": 60}))).await;
        assert_eq!((renewed.status, &renewed.json()["epoch"]), (200, &json!(epoch)), "{renewed:?}");
        // The digits of a number are kept.
        let done = format!(
            r#"{{"scope":"tenant-7","business_type":"payment","key":"order-1","epoch":{epoch},
                "response": {{"paid": 1.10, "é": [null]}}}}"#
        );
        for _ in 0..2 {
            let completed = daemon.post("/v1/idempotency/complete", &done).await;
            assert_eq!((completed.status, completed.json()), (200, json!({"state": "completed"})), "{completed:?}");
        }
        let repeat = call(&daemon, "claim", body).await;
        assert_eq!(repeat.status, 200);
        assert_eq!(repeat.body, r#"{"state":"completed","response":{"paid": 1.10, "é": [null]}}"#);
        // Every other key is free: another scope, type or key.
        for other in [json!({"scope": "tenant-8"}), json!({"business_type": "refund"}), json!({"key": "order-2"})] {
            claimed(&daemon, with(key("order-1"), other)).await;
        }
        let metrics = daemon.get("/metrics").await.body;
        for (result, count) in [("executed", 2), ("replayed", 1), ("conflict", 1), ("mismatch", 2)] {
            let line =
                format!("landfall_idempotency_total{{result=\"{result}\",business_type=\"payment\"}} {count}");
            assert!(metrics.contains(&line), "{line} is missing in\n{metrics}");
        }
    }

    async fn stale_epoch_completes_nothing(sandbox: &Sandbox) {
        let daemon = sandbox.serve_as("push").await;
        let stale = claimed(&daemon, with(key("order-1"), json!({"lease_s": 1}))).await;
        let mut current = 0;
        eventually(TIMEOUT, "the lease expires", async || {
            let response = call(&daemon, "claim", key("order-1")).await;
            current = response.json()["epoch"].as_i64().unwrap_or_default();
            response.status == 200
        })
        .await;
        assert!(current > stale, "{current} is not above {stale}");
        let late = |epoch: i64| with(key("order-1"), json!({"epoch": epoch, "response": "late"}));
        refused(&call(&daemon, "complete", late(stale)).await, 409, "lease-lost");
        for action in ["renew", "release"] {
            let response = call(&daemon, action, with(key("order-1"), json!({"epoch": stale}))).await;
            refused(&response, 409, "lease-lost");
        }
        let done = with(key("order-1"), json!({"epoch": current, "response": null}));
        assert_eq!(call(&daemon, "complete", done).await.status, 200);
        let repeat = call(&daemon, "claim", key("order-1")).await;
        assert_eq!(repeat.body, r#"{"state":"completed","response":null}"#);
        refused(&call(&daemon, "complete", late(stale)).await, 409, "lease-lost");

        // Work that did nothing frees the key at once, also for a corrected request.
        let epoch = claimed(&daemon, key("order-2")).await;
        let released = call(&daemon, "release", with(key("order-2"), json!({"epoch": epoch}))).await;
        assert_eq!((released.status, released.json()), (200, json!({"state": "released"})));
        assert!(claimed(&daemon, with(key("order-2"), json!({"fingerprint": "other"}))).await > epoch);
    }

    async fn two_daemons_and_a_kill_leave_one_winner(sandbox: &Sandbox) {
        let (first, second) = (sandbox.serve_as("push").await, second(sandbox).await);
        let claims = (0..20).map(|number| {
            let daemon = if number % 2 == 0 { &first } else { &second };
            call(daemon, "claim", key("order-1"))
        });
        let answers = futures_util::future::join_all(claims).await;
        let winners: Vec<&Response> = answers.iter().filter(|answer| answer.status == 200).collect();
        let [winner] = winners[..] else { panic!("{} winners", winners.len()) };
        assert_eq!(answers.iter().filter(|answer| answer.status == 409).count(), 19);
        // The daemon that answered the claim dies; its key stays claimed, and the other one completes it.
        first.kill().await;
        refused(&call(&second, "claim", key("order-1")).await, 409, "in-flight");
        let epoch = winner.json()["epoch"].clone();
        let done = with(key("order-1"), json!({"epoch": epoch, "response": {"paid": true}}));
        assert_eq!(call(&second, "complete", done).await.status, 200);
        second.kill().await;
        let third = sandbox.serve_as("push").await;
        let repeat = call(&third, "claim", key("order-1")).await;
        assert_eq!(repeat.json()["response"], json!({"paid": true}), "{repeat:?}");
    }

    async fn token_is_consumed_once(sandbox: &Sandbox) {
        let daemon = sandbox.serve_as("push").await;
        let business = json!({"business_type": "order", "business_id": "7"});
        let issued = daemon.post("/v1/tokens", business.to_string()).await;
        assert_eq!(issued.status, 201, "{issued:?}");
        let token = issued.json()["token"].clone();
        assert!(issued.json()["expires_at"].as_str().unwrap().ends_with('Z'), "{issued:?}");
        let consume = async |more: Value| {
            let body = with(with(business.clone(), json!({"token": token})), more);
            daemon.post("/v1/tokens/consume", body.to_string()).await
        };
        for wrong in [json!({"business_id": "8"}), json!({"business_type": "refund"}), json!({"token": "x"})] {
            refused(&consume(wrong).await, 409, "token-invalid");
        }
        let unknown = json!({"token": "00000000000000000000000000000000"});
        refused(&consume(unknown).await, 409, "token-invalid");
        let answers = futures_util::future::join_all((0..10).map(|_| consume(json!({})))).await;
        let consumed: Vec<_> = answers.iter().filter(|answer| answer.status == 200).collect();
        assert_eq!((consumed.len(), consumed[0].json()), (1, json!({"state": "consumed"})));
        refused(&consume(json!({})).await, 409, "token-used");
        // Survives a kill, and expires.
        daemon.kill().await;
        let daemon = sandbox.serve_as("push").await;
        let body = with(business.clone(), json!({"token": token}));
        refused(&daemon.post("/v1/tokens/consume", body.to_string()).await, 409, "token-used");
        let short = daemon.post("/v1/tokens", with(business.clone(), json!({"ttl_s": 60})).to_string()).await;
        let past = match sandbox.database() {
            "sqlite" => "0",
            "postgres" => "now() - interval '1 second'",
            _ => "UTC_TIMESTAMP(6) - INTERVAL 1 SECOND",
        };
        sandbox.sql(&format!("UPDATE landfall_idempotency SET expires_at = {past} WHERE state = 'issued'")).await;
        let body = with(business, json!({"token": short.json()["token"]}));
        refused(&daemon.post("/v1/tokens/consume", body.to_string()).await, 409, "token-invalid");
    }

    async fn token_is_consumed_with_its_work_and_given_back_by_a_release(sandbox: &Sandbox) {
        let daemon = sandbox.serve_as("push").await;
        let business = json!({"business_type": "order", "business_id": "7"});
        let issue = async || {
            let issued = daemon.post("/v1/tokens", business.to_string()).await;
            with(business.clone(), json!({"token": issued.json()["token"]}))
        };
        let token = issue().await;
        for wrong in [json!({"business_id": "8"}), json!({"business_type": "refund"}), json!({"token": "x"})] {
            refused(&call(&daemon, "claim", with(token.clone(), wrong)).await, 409, "token-invalid");
        }
        for wrong in [json!({"scope": "*"}), json!({"key": "order-1"})] {
            refused(&call(&daemon, "claim", with(token.clone(), wrong)).await, 400, "invalid-request");
        }
        let request = with(token.clone(), json!({"fingerprint": "10 EUR"}));
        let consume = async || daemon.post("/v1/tokens/consume", token.to_string()).await;
        // The work failed: the token is not lost, and is used for a corrected request.
        let first = claimed(&daemon, with(token.clone(), json!({"fingerprint": "9 EUR"}))).await;
        refused(&call(&daemon, "claim", request.clone()).await, 422, "different-request");
        refused(&consume().await, 409, "token-used");
        let released = call(&daemon, "release", with(token.clone(), json!({"epoch": first}))).await;
        assert_eq!((released.status, released.json()), (200, json!({"state": "released"})), "{released:?}");
        let epoch = claimed(&daemon, request.clone()).await;
        assert!(epoch > first, "{epoch} is not above {first}");
        refused(&call(&daemon, "claim", request.clone()).await, 409, "in-flight");
        let renewed = call(&daemon, "renew", with(token.clone(), json!({"epoch": epoch, "lease_s": 60}))).await;
        assert_eq!((renewed.status, &renewed.json()["epoch"]), (200, &json!(epoch)), "{renewed:?}");
        refused(&call(&daemon, "release", with(token.clone(), json!({"epoch": first}))).await, 409, "lease-lost");
        let done = with(token.clone(), json!({"epoch": epoch, "response": {"paid": true}}));
        assert_eq!(call(&daemon, "complete", done).await.status, 200);
        // A repeat gets its answer; nothing else can use the token, also after a kill.
        daemon.kill().await;
        let daemon = sandbox.serve_as("push").await;
        assert_eq!(call(&daemon, "claim", request).await.json()["response"], json!({"paid": true}));
        refused(&call(&daemon, "claim", token.clone()).await, 422, "different-request");
        refused(&daemon.post("/v1/tokens/consume", token.to_string()).await, 409, "token-used");
    }

    async fn uncertain_record_is_resolved_by_a_person(sandbox: &Sandbox) {
        let daemon = sandbox.serve_as("push").await;
        let parking = json!({"on_unknown": "uncertain"});
        for name in ["order-1", "order-2"] {
            let epoch = claimed(&daemon, with(key(name), parking.clone())).await;
            let unknown = json!({"epoch": epoch, "outcome": "unknown", "reason": "timeout of the bank"});
            let released = call(&daemon, "release", with(key(name), unknown)).await;
            assert_eq!((released.status, released.json()), (200, json!({"state": "unknown"})), "{released:?}");
            let refusal = call(&daemon, "claim", key(name)).await;
            refused(&refusal, 409, "uncertain");
            assert_eq!(refusal.header("retry-after"), None);
        }
        eventually(TIMEOUT, "the gauge", async || {
            daemon.get("/metrics").await.body.contains("landfall_idempotency_records{state=\"uncertain\"} 2")
        })
        .await;
        let list = async |arguments: &[&str]| {
            let arguments = [&["idempotency", "list", "--json"], arguments].concat();
            sandbox.run(&arguments).await.objects()
        };
        let listed = list(&["--state", "uncertain"]).await;
        assert_eq!((listed.len(), &listed[0]["reason"]), (2, &json!("timeout of the bank")), "{listed:?}");
        assert_eq!(list(&["--scope", "tenant-8"]).await.len(), 0);
        let id = |name: &str| listed.iter().find(|row| row["key"] == name).unwrap()["id"].as_str().unwrap().to_owned();
        let released =
            sandbox.run(&["idempotency", "release", &id("order-1"), "--actor", "ann", "--json"]).await.objects();
        assert_eq!(released, [json!({"id": id("order-1"), "state": "released"})]);
        let response = r#"{"paid":true}"#;
        let completed = ["idempotency", "complete", &id("order-2"), "--response", response, "--actor", "ann"];
        assert_eq!(sandbox.run(&completed).await.code, 0);
        let again = sandbox.run(&completed).await;
        assert!(again.error_line(1).contains("is completed; only an uncertain one"), "{again:?}");
        assert!(sandbox.run(&["idempotency", "show", &id("order-2")]).await.stdout.contains("resolved by ann"));
        claimed(&daemon, key("order-1")).await;
        assert_eq!(call(&daemon, "claim", key("order-2")).await.json()["response"], json!({"paid": true}));
        let audited = sandbox.count("SELECT count(*) FROM landfall_audit WHERE actor = 'ann'").await;
        assert_eq!(audited, 2);
        let missing = sandbox.run(&["idempotency", "show", &"0".repeat(64)]).await;
        assert!(missing.error_line(1).contains("there is no idempotency record"), "{missing:?}");
    }
}

#[tokio::test]
async fn large_response_is_not_kept_and_never_run_again() {
    let sandbox = Sandbox::new();
    let daemon = sandbox.serve_as("push").await;
    let epoch = claimed(&daemon, key("order-1")).await;
    let large = with(key("order-1"), json!({"epoch": epoch, "response": "x".repeat(256 * 1024)}));
    assert_eq!(call(&daemon, "complete", large).await.status, 200);
    refused(&call(&daemon, "claim", key("order-1")).await, 409, "result-not-kept");
    let epoch = claimed(&daemon, key("order-2")).await;
    let done = with(key("order-2"), json!({"epoch": epoch, "response": 1}));
    assert_eq!(call(&daemon, "complete", done).await.status, 200);
    sandbox.sql("UPDATE landfall_idempotency SET body = NULL, body_state = 'expired'").await;
    refused(&call(&daemon, "claim", key("order-2")).await, 409, "result-expired");
}

#[tokio::test]
async fn housekeeping_removes_answers_before_keys() {
    let sandbox = Sandbox::new();
    sandbox.configure("[retention]\nidempotency = \"1h\"\nidempotency_answers = \"1d\"\n");
    let refusal = sandbox.run(&["serve", "--listen", "127.0.0.1:0"]).await;
    assert!(refusal.code != 0 && refusal.stderr.contains("is shorter than idempotency_answers"), "{refusal:?}");
    sandbox.configure("[retention]\nidempotency = \"forever\"\nidempotency_answers = \"0\"\n");
    let daemon = sandbox.serve_as("push").await;
    let epoch = claimed(&daemon, key("order-1")).await;
    let done = with(key("order-1"), json!({"epoch": epoch, "response": 1}));
    assert_eq!(call(&daemon, "complete", done).await.status, 200);
    daemon.kill().await;
    // Each start begins with a round of housekeeping.
    let daemon = sandbox.serve_as("push").await;
    eventually(TIMEOUT, "the answer is gone", async || {
        call(&daemon, "claim", key("order-1")).await.json()["type"] == "urn:landfall:problem:result-expired"
    })
    .await;
}
