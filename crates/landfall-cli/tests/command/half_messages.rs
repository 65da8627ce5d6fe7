//! Half messages: prepare, commit and rollback over HTTP, check-back, and `landfall half`.

use landfall_testkit::eventually;
use serde_json::{Value, json};

use super::support::{Daemon, Receiver, Sandbox, TIMEOUT, on_each, response};

/// Short pauses, and the addresses of this machine.
const QUICK: &str = "[check_back]\ninterval_ms = 20\nimmunity_ms = 0\ntimeout_ms = 500\nbackoff_first_ms = 10\n\
                     backoff_cap_ms = 20\nallow_private_addresses = true\n";

/// Ids of senders that decide before they prepare.
const EARLY: &str = "0190d2a7-6a4e-7bbb-8a6d-3c1f0a9b1c2d";
const NEVER: &str = "0190d2a7-6a4e-7bbb-8a6d-3c1f0a9b1c2e";

async fn tail(sandbox: &Sandbox, topic: &str) -> Vec<Value> {
    let finished = sandbox.run(&["topic", "tail", topic, "--json"]).await;
    if finished.code == 1 { Vec::new() } else { finished.objects() }
}

async fn ids(sandbox: &Sandbox) -> Vec<String> {
    tail(sandbox, "orders").await.iter().map(|line| line["id"].as_str().unwrap().to_owned()).collect()
}

/// A half message about order `number`, with this target.
fn half(number: u32, check_back: Value) -> Value {
    json!({
        "topic": "orders", "key": format!("order-{number}"), "kind": "OrderPlaced", "payload": {"n": number},
        "business_type": "order", "business_id": number.to_string(), "check_back": check_back
    })
}

/// The same with headers, a sequence and a mode.
fn full_half(number: u32, check_back: Value) -> Value {
    let mut half = half(number, check_back);
    half["headers"] = json!({"tenant": "a"});
    half["sequence"] = json!(7);
    half["mode"] = json!("at-least-once");
    half
}

/// Asserts that the published message has the headers and the sequence of [`full_half`], and the stored one its mode.
async fn assert_full(sandbox: &Sandbox, line: &Value) {
    assert_eq!((&line["headers"]["tenant"], &line["sequence"]), (&json!("a"), &json!(7)), "{line}");
    let stored = "SELECT count(*) FROM landfall_half_message WHERE mode = 'at-least-once'";
    assert_eq!(sandbox.count(stored).await, 1);
}

/// An address that refuses connections.
fn nowhere() -> Value {
    json!({"http": "http://127.0.0.1:9/state"})
}

async fn prepare(daemon: &Daemon, half: &Value) -> String {
    let response = daemon.post("/v1/half-messages", half.to_string()).await;
    assert_eq!(response.status, 201, "{response:?}");
    assert_eq!(response.json()["state"], "prepared", "{response:?}");
    response.json()["id"].as_str().unwrap().to_owned()
}

async fn decide(daemon: &Daemon, id: &str, verb: &str) -> (u16, Value) {
    let response = daemon.post(&format!("/v1/half-messages/{id}/{verb}"), "").await;
    (response.status, response.json())
}

async fn state(daemon: &Daemon, id: &str) -> Value {
    let response = daemon.get(&format!("/v1/half-messages/{id}")).await;
    assert_eq!(response.status, 200, "{response:?}");
    response.json()
}

async fn wait_for_state(daemon: &Daemon, id: &str, wanted: &str) -> Value {
    eventually(TIMEOUT, wanted, async || state(daemon, id).await["state"] == wanted).await;
    state(daemon, id).await
}

/// Catches a coordinator that asks during the immunity period.
#[tokio::test]
async fn immunity_period_spends_no_checks() {
    let receiver = Receiver::start(|_, _| response(200, "", r#"{"state":"rolled_back"}"#)).await;
    let sandbox = Sandbox::new();
    sandbox.configure(QUICK);
    let daemon = sandbox.serve().await;
    let target = json!({"http": format!("http://{}/", receiver.address)});
    let mut immune = half(1, target.clone());
    immune["check_after_s"] = json!(3600);
    let immune = prepare(&daemon, &immune).await;
    // Checked although it was prepared later: the coordinator has looked at both.
    let other = prepare(&daemon, &half(2, target)).await;
    wait_for_state(&daemon, &other, "rolled_back").await;
    assert_eq!(receiver.requests().len(), 1);
    assert_eq!(
        (state(&daemon, &immune).await["state"].clone(), decide(&daemon, &immune, "commit").await.0),
        (json!("prepared"), 200)
    );
}

#[tokio::test]
async fn business_may_have_several_half_messages() {
    let sandbox = Sandbox::new();
    let daemon = sandbox.serve().await;
    let mut half = half(1, nowhere());
    let first = prepare(&daemon, &half).await;
    half["payload"] = json!("another");
    assert_ne!(prepare(&daemon, &half).await, first);
}

#[tokio::test]
async fn private_check_back_address_is_refused_by_default() {
    let receiver = Receiver::start(|_, _| response(200, "", r#"{"state":"committed"}"#)).await;
    let sandbox = Sandbox::new();
    sandbox.configure(&QUICK.replace("allow_private_addresses = true", "max_checks = 1"));
    let daemon = sandbox.serve().await;
    let id = prepare(&daemon, &half(1, json!({"http": format!("http://{}/", receiver.address)}))).await;
    let row = wait_for_state(&daemon, &id, "parked").await;
    assert!(row["last_answer"].as_str().unwrap().contains("check_back.allow_private_addresses"), "{row}");
    assert_eq!(receiver.requests().len(), 0);
}

/// A killed process leaves a barrier row or none; the coordinator asks the business database. A late local commit
/// fails.
#[tokio::test]
async fn barrier_decides_after_the_business_process_is_gone() {
    let business = Sandbox::new();
    assert_eq!(business.run(&["migrate"]).await.code, 0);
    let sandbox = Sandbox::new();
    let file = business.data().join("landfall.db");
    sandbox.configure(&format!("{QUICK}databases = {{ shop = \"sqlite:{}\" }}\n", file.display()));
    let daemon = sandbox.serve().await;
    let prepared = async |number: u32| {
        let mut immune = half(number, json!({"database": "shop"}));
        immune["check_after_s"] = json!(3600);
        prepare(&daemon, &immune).await
    };
    let insert = |id: &str| format!("INSERT INTO landfall_barrier (id) VALUES ('{id}')");
    let (kept, discarded) = (prepared(1).await, prepared(2).await);
    business.sql(&insert(&kept)).await;
    for (id, answer) in [(&kept, "committed"), (&discarded, "rolled_back")] {
        let checked = sandbox.run(&["half", "check", id, "--json"]).await.objects();
        assert_eq!((&checked[0]["answer"], &checked[0]["state"]), (&json!(answer), &json!(answer)));
    }
    eventually(TIMEOUT, "the message", async || ids(&sandbox).await == [kept.clone()]).await;
    // The tombstone refuses the local transaction that comes late.
    assert!(business.try_sql(&insert(&discarded)).await.is_err());
}

#[tokio::test]
async fn killed_coordinator_is_replaced() {
    let receiver = Receiver::start(|number, _| match number {
        // The first coordinator is killed while it waits for this answer.
        0 => None,
        _ => response(200, "", r#"{"state":"committed"}"#),
    })
    .await;
    let sandbox = Sandbox::new();
    sandbox.configure(&QUICK.replace("timeout_ms = 500", "timeout_ms = 60000"));
    let first = sandbox.serve().await;
    let id = prepare(&first, &half(1, json!({"http": format!("http://{}/", receiver.address)}))).await;
    eventually(TIMEOUT, "the first check-back", async || receiver.requests().len() == 1).await;
    first.kill().await;
    // The claim is due again after its lease; the test does not wait for that.
    sandbox.sql("UPDATE landfall_half_message SET next_check_at = 0").await;
    let second = sandbox.serve().await;
    assert_eq!(wait_for_state(&second, &id, "committed").await["decided_by"], "check-back");
    eventually(TIMEOUT, "the message", async || ids(&sandbox).await == [id.clone()]).await;
    assert_eq!(receiver.requests().len(), 2);
}

on_each! {
    async fn committed_half_message_is_delivered_and_rolled_back_one_never(sandbox: &Sandbox) {
        let daemon = sandbox.serve().await;
        let kept = prepare(&daemon, &half(1, nowhere())).await;
        let discarded = prepare(&daemon, &half(2, nowhere())).await;
        let rolled_back = json!({"id": discarded, "state": "rolled_back"});
        assert_eq!(decide(&daemon, &discarded, "rollback").await, (200, rolled_back));
        // A message without a verdict is invisible: the plain one is delivered, and it is not.
        let plain = daemon.send(r#"{"topic":"orders","payload":0}"#).await;
        eventually(TIMEOUT, "the plain message", async || ids(sandbox).await == [plain.clone()]).await;
        for _ in 0..2 {
            assert_eq!(decide(&daemon, &kept, "commit").await, (200, json!({"id": kept, "state": "committed"})));
        }
        eventually(TIMEOUT, "the committed message", async || ids(sandbox).await.contains(&kept)).await;
        let last = daemon.send(r#"{"topic":"orders","payload":9}"#).await;
        eventually(TIMEOUT, "the last message", async || ids(sandbox).await.contains(&last)).await;
        let lines = tail(sandbox, "orders").await;
        assert_eq!(lines.len(), 3, "{lines:?}");
        let line = lines.iter().find(|line| line["id"] == kept.as_str()).unwrap();
        assert_eq!((&line["key"], &line["kind"]), (&json!("order-1"), &json!("OrderPlaced")));
        assert_eq!(line["payload"], json!({"n": 1}));
    }

    async fn order_and_repeats_have_one_answer_each(sandbox: &Sandbox) {
        let daemon = sandbox.serve().await;
        let mut first = half(1, nowhere());
        first["id"] = json!("order-1-placed");
        let id = prepare(&daemon, &first).await;
        assert_eq!(prepare(&daemon, &first).await, id, "an equal prepare has the same answer");
        let mut other = first.clone();
        other["payload"] = json!({"n": 5});
        let response = daemon.post("/v1/half-messages", other.to_string()).await;
        assert!(response.problem(422).contains("another message"), "{response:?}");

        assert_eq!(decide(&daemon, &id, "commit").await.0, 200);
        let refusal = daemon.post(&format!("/v1/half-messages/{id}/rollback"), "").await;
        assert!(refusal.problem(409).contains("is committed already"), "{refusal:?}");
        assert_eq!(state(&daemon, &id).await["contradicted_by"], "sender");
        assert_eq!(decide(&daemon, &id, "commit").await.0, 200, "the first verdict stays");
        let response = daemon.post("/v1/half-messages", first.to_string()).await;
        assert_eq!((response.status, &response.json()["state"]), (201, &json!("committed")));

        // Decisions before the prepare.
        assert_eq!(decide(&daemon, EARLY, "commit").await.0, 200);
        assert_eq!(decide(&daemon, NEVER, "rollback").await.0, 200);
        for (number, name, expected) in [(2, EARLY, "committed"), (3, NEVER, "rolled_back")] {
            let mut late = half(number, nowhere());
            late["id"] = json!(name);
            let response = daemon.post("/v1/half-messages", late.to_string()).await;
            assert_eq!((response.status, &response.json()["state"]), (201, &json!(expected)), "{response:?}");
        }
        eventually(TIMEOUT, "both committed messages", async || tail(sandbox, "orders").await.len() == 2).await;
        assert_eq!(daemon.post(&format!("/v1/half-messages/{NEVER}/commit"), "").await.status, 409);
        let listed = daemon.get("/v1/half-messages?contradicted=true").await.json();
        assert_eq!(listed["items"].as_array().unwrap().len(), 2, "{listed}");
        assert_eq!(daemon.get("/v1/half-messages/0190d2a7-6a4e-7bbb-8a6d-3c1f0a9b1c2f").await.status, 404);
    }

    async fn check_back_over_http_decides_and_is_signed(sandbox: &Sandbox) {
        let receiver = Receiver::start(|_, request| {
            let is_first = request.body.contains("\"business_id\":\"1\"");
            response(200, "", if is_first { r#"{"state":"committed"}"# } else { r#"{"state":"rolled_back"}"# })
        })
        .await;
        sandbox.configure(&format!(
            "{QUICK}secret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"\n\
                                    services = {{ orders = \"http://{}\" }}\n",
            receiver.address
        ));
        let daemon = sandbox.serve().await;
        let kept = prepare(&daemon, &half(1, json!({"http": format!("http://{}/state", receiver.address)}))).await;
        let discarded = prepare(&daemon, &half(2, json!({"http": "service:orders/state"}))).await;
        assert_eq!(wait_for_state(&daemon, &kept, "committed").await["decided_by"], "check-back");
        wait_for_state(&daemon, &discarded, "rolled_back").await;
        eventually(TIMEOUT, "the message", async || ids(sandbox).await == [kept.clone()]).await;
        let request = receiver.requests().into_iter().find(|request| request.body.contains(&kept)).unwrap();
        let body: Value = serde_json::from_str(&request.body).unwrap();
        assert_eq!(body, json!({"id": kept, "business_type": "order", "business_id": "1"}));
        assert_eq!(request.header("request-line"), "POST /state HTTP/1.1");
        assert_eq!(request.header("webhook-id"), kept);
        assert!(request.header("webhook-signature").starts_with("v1,"), "{request:?}");
        // The late commit of a sender that was rolled back is refused.
        assert_eq!(decide(&daemon, &discarded, "commit").await.0, 409);
    }

    /// Catches two naive coordinators: unknown read as a rollback, and an error body read as a commit.
    async fn unclear_answers_are_unknown_and_asked_again(sandbox: &Sandbox) {
        let receiver = Receiver::start(|number, _| match number {
            0 => response(500, "", r#"{"state":"committed"}"#),
            1 => response(404, "", r#"{"state":"rolled_back"}"#),
            2 => response(200, "", "committed"),
            3 => response(200, "", r#"{"state":"unknown"}"#),
            4 => response(200, "", &format!(r#"{{"state":"committed","x":"{}"}}"#, "x".repeat(100_000))),
            5 => response(302, "location: /other\r\n", r#"{"state":"committed"}"#),
            6 => None,
            _ => response(200, "", r#"{"state":"committed"}"#),
        })
        .await;
        sandbox.configure(QUICK);
        let daemon = sandbox.serve().await;
        let id = prepare(&daemon, &half(1, json!({"http": format!("http://{}/", receiver.address)}))).await;
        let row = wait_for_state(&daemon, &id, "committed").await;
        assert_eq!((&row["checks"], receiver.requests().len()), (&json!(7), 8), "{row}");
        eventually(TIMEOUT, "the message", async || ids(sandbox).await == [id.clone()]).await;
    }

    async fn unanswered_message_is_parked_and_a_person_decides(sandbox: &Sandbox) {
        sandbox.configure(&format!("{QUICK}max_checks = 2\n"));
        let daemon = sandbox.serve().await;
        let kept = prepare(&daemon, &half(1, nowhere())).await;
        let discarded = prepare(&daemon, &half(2, json!({"database": "nowhere"}))).await;
        for id in [&kept, &discarded] {
            assert_eq!(wait_for_state(&daemon, id, "parked").await["checks"], 2);
        }
        let listed = sandbox.run(&["half", "list", "--state", "parked", "--json"]).await.objects();
        assert_eq!(listed.len(), 2, "{listed:?}");
        let reason = |id: &str| listed.iter().find(|row| row["id"] == id).unwrap()["last_answer"].clone();
        assert!(reason(&kept).as_str().unwrap().starts_with("http: cannot connect"), "{listed:?}");
        assert!(reason(&discarded).as_str().unwrap().contains("no database is configured"), "{listed:?}");
        eventually(TIMEOUT, "the gauge", async || {
            daemon.get("/metrics").await.body.contains("landfall_half_messages{state=\"parked\"} 2")
        })
        .await;

        let check = sandbox.run(&["half", "check", &kept]).await;
        assert!(check.code == 1 && check.stderr.contains("unknown"), "{check:?}");
        let committed = sandbox.run(&["half", "commit", &kept, "--actor", "ann", "--json"]).await.objects();
        assert_eq!(committed, [json!({"id": kept, "state": "committed"})]);
        assert_eq!(sandbox.run(&["half", "rollback", &discarded, "--actor", "ann"]).await.code, 0);
        eventually(TIMEOUT, "the message", async || ids(sandbox).await == [kept.clone()]).await;
        assert_eq!(state(&daemon, &kept).await["decided_by"], "ann");
        let again = sandbox.run(&["half", "rollback", &kept]).await;
        assert!(again.error_line(1).contains("is committed already"), "{again:?}");
        assert_eq!(sandbox.run(&["half", "acknowledge", &kept]).await.code, 0);
        assert!(sandbox.run(&["half", "show", &kept]).await.stdout.contains("ann"));
        let missing = sandbox.run(&["half", "commit", "unheard-of"]).await;
        assert!(missing.error_line(1).contains("there is no half message"), "{missing:?}");
        let audited = sandbox.count("SELECT count(*) FROM landfall_audit WHERE actor = 'ann'").await;
        assert_eq!(audited, 2);
    }

    async fn half_message_keeps_headers_sequence_and_mode(sandbox: &Sandbox) {
        let daemon = sandbox.serve().await;
        let id = prepare(&daemon, &full_half(1, nowhere())).await;
        assert_eq!(decide(&daemon, &id, "commit").await.0, 200);
        eventually(TIMEOUT, "the message", async || ids(sandbox).await == [id.clone()]).await;
        assert_full(sandbox, &tail(sandbox, "orders").await[0]).await;
        for (field, wrong) in [("headers", json!({"ce_id": "x"})), ("sequence", json!(-1)), ("mode", json!("twice"))] {
            let mut half = half(2, nowhere());
            half[field] = wrong;
            let refusal = daemon.post("/v1/half-messages", half.to_string()).await;
            assert!(refusal.problem(400).contains(field.trim_end_matches('s')), "{refusal:?}");
        }
    }

    async fn topic_carries_prepare_commit_and_rollback(sandbox: &Sandbox) {
        sandbox.configure("[check_back]\ntopic = \"look_back_msg\"\n");
        let daemon = sandbox.serve().await;
        let send = async |action: &str, number: u32| {
            let mut half = full_half(number, nowhere());
            half["action"] = json!(action);
            if action != "prepare" {
                half = json!({"action": action, "business_type": "order", "business_id": number.to_string()});
            }
            let key = format!("order-{number}");
            daemon.send(&json!({"topic": "look_back_msg", "key": key, "payload": half}).to_string()).await;
        };
        for number in [1, 2] {
            send("prepare", number).await;
        }
        send("commit", 1).await;
        send("rollback", 2).await;
        let bad = daemon.send(r#"{"topic":"look_back_msg","payload":{"action":"prepare"}}"#).await;
        eventually(TIMEOUT, "the message", async || tail(sandbox, "orders").await.len() == 1).await;
        let line = &tail(sandbox, "orders").await[0];
        assert_eq!(line["payload"], json!({"n": 1}));
        assert_eq!((&line["headers"]["tenant"], &line["sequence"]), (&json!("a"), &json!(7)), "{line}");
        eventually(TIMEOUT, "the rollback", async || {
            daemon.get("/v1/half-messages?state=rolled_back").await.json()["items"].as_array().unwrap().len() == 1
        })
        .await;
        eventually(TIMEOUT, "the dead letter", async || {
            let letters = sandbox.run(&["dlq", "list", "--json"]).await.objects();
            let Some(letter) = letters.first() else { return false };
            letters.len() == 1 && letter["message_id"] == bad.as_str() && letter["error_code"] == "VALIDATION_ERROR"
        })
        .await;
    }
}
