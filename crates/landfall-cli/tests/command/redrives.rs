//! Dead letters over HTTP: find, ignore, redrive as a job, audit.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use landfall_testkit::{assert_no_violation, eventually};
use serde_json::{Value, json};

use super::redrive_check::{Run, violations};
use super::support::{Daemon, Receiver, Sandbox, TIMEOUT, on_each, request, response};

/// Keys whose first message is parked. `LANDFALL_REDRIVE_KEYS` replaces it.
const KEYS: usize = 40;

/// Messages of a key that wait behind the parked one.
const BEHIND: usize = 2;

/// A receiver that rejects everything until it is healthy.
pub(crate) async fn receiver() -> (Receiver, Arc<AtomicBool>) {
    let healthy = Arc::new(AtomicBool::new(false));
    let known = healthy.clone();
    let receiver =
        Receiver::start(
            move |_, _| {
                if known.load(Ordering::SeqCst) { response(200, "", "") } else { response(422, "", "no") }
            },
        );
    (receiver.await, healthy)
}

async fn send(daemon: &Daemon, key: usize, number: usize) {
    let body = json!({"topic": "orders", "key": format!("k{key}"), "payload": {"key": key, "n": number}});
    daemon.send(&body.to_string()).await;
}

pub(crate) async fn count(daemon: &Daemon, query: &str) -> u64 {
    let response = daemon.get(&format!("/v1/dead-letters?limit=1&{query}")).await;
    assert_eq!(response.status, 200, "{response:?}");
    response.json()["matched"]["count"].as_u64().unwrap()
}

pub(crate) async fn start(daemon: &Daemon, key: &str, body: &Value) -> Value {
    let headers = [("idempotency-key", key), ("content-type", "application/json")];
    let response = request(daemon.address, "POST", "/v1/redrives", &headers, body.to_string().as_bytes()).await;
    assert_eq!(response.status, 202, "{response:?}");
    response.json()
}

/// Returns a job, whose counts must add up.
pub(crate) async fn receipt(daemon: &Daemon, id: &Value) -> Value {
    let response = daemon.get(&format!("/v1/redrives/{}", id.as_str().unwrap())).await;
    assert_eq!(response.status, 200, "{response:?}");
    let job = response.json();
    let parts = ["succeeded", "failed", "skipped", "missing", "remaining"];
    let sum: u64 = parts.iter().map(|part| job[part].as_u64().unwrap()).sum();
    assert_eq!(job["matched"].as_u64().unwrap(), sum, "{job}");
    job
}

pub(crate) async fn wait_until_finished(daemon: &Daemon, id: &Value) -> Value {
    eventually(TIMEOUT, "the redrive", async || receipt(daemon, id).await["state"] == "finished").await;
    receipt(daemon, id).await
}

/// What the receiver accepted: of each key the numbers in the order of their first delivery.
pub(crate) fn accepted(receiver: &Receiver, since: usize) -> BTreeMap<u64, Vec<u64>> {
    let (mut seen, mut order): (HashSet<String>, BTreeMap<u64, Vec<u64>>) = Default::default();
    for request in &receiver.requests()[since..] {
        if seen.insert(request.header("idempotency-key").to_owned()) {
            let body: Value = serde_json::from_str(&request.body).unwrap();
            order.entry(body["key"].as_u64().unwrap()).or_default().push(body["n"].as_u64().unwrap());
        }
    }
    order
}

pub(crate) async fn park(daemon: &Daemon, keys: usize) {
    for key in 0..keys {
        for number in 0..=BEHIND {
            send(daemon, key, number).await;
        }
    }
    let (parked, waiting) = (keys as u64, (keys * BEHIND) as u64);
    eventually(TIMEOUT, "the dead letters", async || {
        (count(daemon, "status=parked").await, count(daemon, "status=waiting").await) == (parked, waiting)
    })
    .await;
}

on_each! {
    /// Two operators start the same redrive under live traffic, and the daemon is killed in the middle.
    async fn redrive_survives_kills_in_order_without_doubles(sandbox: &Sandbox) {
        let keys = std::env::var("LANDFALL_REDRIVE_KEYS").ok().and_then(|text| text.parse().ok()).unwrap_or(KEYS);
        let (receiver, healthy) = receiver().await;
        sandbox.configure(&receiver.subscription(""));
        let mut daemon = sandbox.serve().await;
        park(&daemon, keys).await;
        let refused = receiver.requests().len();
        healthy.store(true, Ordering::SeqCst);

        let body = json!({"filter": {"group": "mailer", "code": "UPSTREAM_4XX"}, "lane": "main", "rate_per_s": 20,
                          "concurrency": 8, "reason": "the mailer is back", "actor": "maria"});
        let job = start(&daemon, "operator-1", &body).await;
        assert_eq!(job["matched"], keys);
        let again = start(&daemon, "operator-1", &body).await;
        assert_eq!(again["id"], job["id"], "a repeated request is another job");
        let second = start(&daemon, "operator-2", &body).await;
        assert_ne!(second["id"], job["id"]);
        for round in 0..3_u64 {
            let done = keys as u64 * (round + 1) / 5;
            eventually(TIMEOUT, "progress", async || {
                let (first, second) = (receipt(&daemon, &job["id"]).await, receipt(&daemon, &second["id"]).await);
                first["succeeded"].as_u64().unwrap() + second["succeeded"].as_u64().unwrap() >= done
            })
            .await;
            for key in 0..keys {
                send(&daemon, key, BEHIND + 1 + round as usize).await;
            }
            daemon.kill().await;
            daemon = sandbox.serve().await;
        }
        let (one, two) =
            (wait_until_finished(&daemon, &job["id"]).await, wait_until_finished(&daemon, &second["id"]).await);
        let part = |name: &str| one[name].as_u64().unwrap() + two[name].as_u64().unwrap();
        assert_eq!((part("succeeded"), part("failed"), part("missing")), (keys as u64, 0, 0), "{one} {two}");
        assert_eq!(part("skipped"), keys as u64, "{one} {two}");

        let expected: Vec<u64> = (0..=(BEHIND + 3) as u64).collect();
        eventually(TIMEOUT, "all messages", async || {
            let accepted = accepted(&receiver, refused);
            accepted.len() == keys && accepted.values().all(|numbers| numbers.len() == expected.len())
        })
        .await;
        let accepted = accepted(&receiver, refused);
        assert_no_violation(accepted.values().all(|numbers| *numbers == expected), format!("{accepted:?}"));
        eventually(TIMEOUT, "the drained keys", async || count(&daemon, "status=open").await == 0).await;
        let jobs = vec![job, second];
        let (since, selected) = (refused, (0..keys).collect());
        let run = Run { sandbox, daemon: &daemon, receiver: &receiver, since, jobs, keys: selected };
        let violations = violations(&run).await;
        assert_no_violation(violations.is_empty(), format!("{violations:?}"));
        // Each letter was redriven once.
        let once = "SELECT count(*) FROM landfall_dead_letter WHERE status = 'done' AND redrives = 1";
        assert_eq!(sandbox.count(once).await, keys as i64);
        assert_eq!(sandbox.count("SELECT count(*) FROM landfall_dead_letter WHERE redrives > 1").await, 0);
    }

    async fn stopped_redrive_leaves_the_rest_parked(sandbox: &Sandbox) {
        let (receiver, healthy) = receiver().await;
        sandbox.configure(&receiver.subscription(""));
        let daemon = sandbox.serve().await;
        park(&daemon, 12).await;
        healthy.store(true, Ordering::SeqCst);
        let query = "/ops/dlq/redrive?group=mailer&from=2026-01-01T00:00:00Z&to=2100-01-01T00:00:00Z&lane=slow";
        let started = daemon.post(query, "").await;
        assert_eq!((started.status, &started.json()["matched"]), (202, &json!(12)), "{started:?}");
        let id = started.json()["redrive"].clone();
        let control = async |verb: &str| {
            daemon.post(&format!("/v1/redrives/{}/{verb}", id.as_str().unwrap()), "").await
        };
        assert_eq!(control("pause").await.json()["state"], "paused");
        eventually(TIMEOUT, "letters in flight", async || {
            let (job, redriving) = (receipt(&daemon, &id).await, count(&daemon, "status=redriving").await);
            redriving == 0 && job["state"] == "paused"
        })
        .await;
        let before = receipt(&daemon, &id).await["succeeded"].clone();
        let path = format!("/v1/redrives/{}", id.as_str().unwrap());
        let why = json!({"actor": "maria", "reason": "wrong letters"}).to_string();
        let stopped = daemon.post(&format!("{path}/stop"), why).await.json();
        let reason = json!("stopped by maria: wrong letters");
        assert_eq!((&stopped["state"], &stopped["stop_reason"]), (&json!("stopped"), &reason));
        assert_eq!(control("resume").await.status, 409);
        let job = receipt(&daemon, &id).await;
        assert_eq!(job["succeeded"], before, "a paused redrive went on");
        assert_eq!(count(&daemon, "status=parked").await, job["remaining"].as_u64().unwrap());
        let (mut items, mut next): (Vec<Value>, _) = (Vec::new(), json!(0));
        while next != Value::Null {
            let after = if next == 0 { String::new() } else { format!("&after={next}") };
            let page = daemon.get(&format!("{path}/items?limit=5{after}")).await.json();
            items.extend(page["items"].as_array().unwrap().iter().cloned());
            next = page["next"].clone();
        }
        let in_state = |state: &str| items.iter().filter(|item| item["state"] == state).count() as u64;
        assert_eq!((items.len(), in_state("succeeded")), (12, job["succeeded"].as_u64().unwrap()));
        assert_eq!(in_state("waiting"), job["remaining"].as_u64().unwrap());
        let listed = ["dlq", "redrives", id.as_str().unwrap(), "--items", "--json"];
        assert_eq!(sandbox.run(&listed).await.objects(), items);
        assert_eq!(daemon.get(&format!("{path}/items?state=open")).await.status, 400);
        let listed = daemon.get("/v1/redrives").await.json();
        assert_eq!((listed["items"].as_array().unwrap().len(), &listed["items"][0]["id"]), (1, &id));
    }

    async fn one_letter_is_found_ignored_released_and_redriven(sandbox: &Sandbox) {
        let (receiver, healthy) = receiver().await;
        sandbox.configure(&receiver.subscription(""));
        let daemon = sandbox.serve().await;
        park(&daemon, 1).await;
        let group = daemon.get("/v1/dead-letter-groups").await.json()["items"][0].clone();
        assert_eq!((&group["count"], &group["error_code"]), (&json!(1), &json!("UPSTREAM_4XX")));
        let query = format!("/v1/dead-letters?fingerprint={}", group["fingerprint"].as_str().unwrap());
        let found = daemon.get(&query).await;
        let id = found.json()["items"][0]["id"].clone();
        assert_eq!(id, group["sample"]);
        assert_eq!(count(&daemon, "q=HTTP+422").await, 1, "{:?}", found.json());
        let act = async |verb: &str| {
            let body = json!({"actor": "maria", "reason": format!("{verb} it")}).to_string();
            let response = daemon.post(&format!("/v1/dead-letters/{id}/{verb}"), body).await;
            (response.status, response.json()["status"].clone())
        };
        let rehearse = async || {
            daemon.post(&format!("/v1/dead-letters/{id}/rehearse"), "").await.json()["prediction"].clone()
        };
        assert_eq!(rehearse().await, "ready");
        assert_eq!(act("ignore").await, (200, json!("ignored")));
        assert_eq!(rehearse().await, "ignored");
        assert_eq!(act("redrive").await.0, 409);
        assert_eq!(act("release").await, (200, json!("parked")));
        healthy.store(true, Ordering::SeqCst);
        assert_eq!(act("redrive").await, (200, json!("redriving")));
        eventually(TIMEOUT, "the key", async || count(&daemon, "status=open").await == 0).await;
        let detail = daemon.get(&format!("/v1/dead-letters/{id}")).await.json();
        assert_eq!((&detail["status"], &detail["payload"]), (&json!("done"), &json!({"key": 0, "n": 0})));
        let history: Vec<_> =
            detail["history"].as_array().unwrap().iter().map(|row| (&row["actor"], &row["action"])).collect();
        let (mailer, maria) = (json!("consumer:mailer"), json!("maria"));
        let actions = ["park", "ignore", "release", "redrive", "effect"].map(|action| json!(action));
        let actors = [&mailer, &maria, &maria, &maria, &mailer];
        assert_eq!(history, actors.into_iter().zip(&actions).collect::<Vec<_>>());
        assert_eq!(detail["history"][3]["detail"], "redrive it", "the reason of the redrive is lost");
        assert_eq!(daemon.get("/v1/dead-letters/999999").await.status, 404);

        let lines = [("accept", "application/jsonl")];
        let audit = request(daemon.address, "GET", "/v1/audit?actor=maria", &lines, b"").await;
        assert_eq!(audit.header("content-type"), Some("application/jsonl"));
        let rows: Vec<Value> =
            audit.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(rows.iter().map(|row| &row["action"]).collect::<Vec<_>>(), ["ignore", "release", "redrive"]);
    }
}

/// An export has every row, also those of the pages after the first.
#[tokio::test]
async fn audit_export_is_complete() {
    const ROWS: usize = 2500;
    let sandbox = Sandbox::new();
    let daemon = sandbox.serve().await;
    sandbox
        .sql(&format!(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})
             INSERT INTO landfall_audit (actor, action, message_id, detail)
             SELECT 'maria', 'edit', 'x', '=' || i FROM n"
        ))
        .await;
    let export = async |kind: &str, query: &str| {
        let path = format!("/v1/audit?actor=maria{query}");
        let response = request(daemon.address, "GET", &path, &[("accept", kind)], b"").await;
        assert_eq!((response.status, response.header("content-type")), (200, Some(kind)));
        response.body
    };
    let lines = export("application/jsonl", "").await;
    let rows: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((rows.len(), &rows[ROWS - 1]["detail"]), (ROWS, &json!(format!("={ROWS}"))));
    assert_eq!(export("application/jsonl", "&limit=7").await.lines().count(), 7);
    let table = export("text/csv", "").await;
    assert_eq!(table.lines().count(), ROWS + 1);
    assert!(table.starts_with("\"id\",\"at\",") && table.contains("\"'=17\"\n"), "{}", &table[..500]);
    let page = daemon.get("/v1/audit?actor=maria").await.json();
    assert_eq!((page["items"].as_array().unwrap().len(), page["next"].is_null()), (100, false));
}

/// Failed letters stop the job, and its dry run and its refusals change nothing.
#[tokio::test]
async fn failing_redrive_stops_by_itself() {
    let sandbox = Sandbox::new();
    let (receiver, _unhealthy) = receiver().await;
    sandbox.configure(&receiver.subscription(""));
    let daemon = sandbox.serve().await;
    park(&daemon, 40).await;
    let filter = json!({"filter": {"topic": "orders"}, "dry_run": true});
    let dry = daemon.post("/v1/redrives", filter.to_string()).await;
    let matched = json!({"count": 40, "at_least": false});
    let expected = json!({"state": "dry-run", "matched": matched, "predictions": {"ready": 40}, "handlers": []});
    assert_eq!((dry.status, dry.json()), (200, expected));
    assert_eq!(daemon.post("/v1/redrives", r#"{"filter": {}}"#).await.status, 400);
    assert_eq!(daemon.post("/ops/dlq/redrive", "").await.status, 400);
    assert!(daemon.get("/v1/redrives").await.json()["items"].as_array().unwrap().is_empty());

    let body = json!({"filter": {"topic": "orders"}, "lane": "main", "ramp": false, "concurrency": 10});
    let job = start(&daemon, "bad", &body).await;
    eventually(TIMEOUT, "the stop", async || receipt(&daemon, &job["id"]).await["state"] == "stopped").await;
    // Letters in flight are settled after the stop.
    eventually(TIMEOUT, "the outcomes", async || count(&daemon, "status=redriving").await == 0).await;
    let other = start(&daemon, "cool", &json!({"filter": {"topic": "orders"}, "lane": "main", "ramp": false})).await;
    let skipped = async || receipt(&daemon, &other["id"]).await["skips"]["cool-down"].as_u64().unwrap_or_default();
    eventually(TIMEOUT, "the cool-down", async || skipped().await > 0).await;
    let conflict = [("idempotency-key", "bad")];
    let other = json!({"filter": {"topic": "payments"}}).to_string();
    assert_eq!(request(daemon.address, "POST", "/v1/redrives", &conflict, other.as_bytes()).await.status, 422);
}

/// A viewer sees neither payloads nor headers, and does not learn about payloads from a search.
#[tokio::test]
async fn viewer_learns_nothing_about_payloads() {
    let sandbox = Sandbox::new();
    let (receiver, _unhealthy) = receiver().await;
    let tokens = ["viewer", "payload-reader", "operator"];
    let list: Vec<_> =
        tokens.iter().map(|role| format!("{{ role = \"{role}\", token = \"{role}-0123456789\" }}")).collect();
    sandbox.configure(&format!("{}\n[auth]\ntokens = [{}]\n", receiver.subscription(""), list.join(", ")));
    let daemon = sandbox.serve().await;
    let get = async |role: &str, path: &str| {
        let authorization = format!("Bearer {role}-0123456789");
        request(daemon.address, "GET", path, &[("authorization", &authorization)], b"").await.json()
    };
    let authorization = [("authorization", "Bearer operator-0123456789")];
    let body = json!({"topic": "orders", "payload": {"card": "4111"}, "headers": {"tenant": "acme"}}).to_string();
    assert_eq!(request(daemon.address, "POST", "/v1/messages", &authorization, body.as_bytes()).await.status, 202);
    let items = async |role: &str, query: &str| -> Vec<Value> {
        get(role, &format!("/v1/dead-letters?{query}")).await["items"].as_array().unwrap().clone()
    };
    eventually(TIMEOUT, "the letter", async || !items("viewer", "").await.is_empty()).await;
    let id = items("viewer", "").await[0]["id"].clone();
    let views: HashMap<&str, Value> = HashMap::from([
        ("viewer", get("viewer", &format!("/v1/dead-letters/{id}")).await),
        ("payload-reader", get("payload-reader", &format!("/v1/dead-letters/{id}")).await),
    ]);
    assert_eq!(views["payload-reader"]["payload"], json!({"card": "4111"}));
    assert_eq!(views["payload-reader"]["headers"]["tenant"], "acme");
    let shown = views["viewer"].to_string();
    assert!(!shown.contains("4111") && !shown.contains("acme"), "{shown}");
    assert_eq!((items("viewer", "q=4111").await.len(), items("payload-reader", "q=4111").await.len()), (0, 1));
    assert!(!json!(items("viewer", "").await).to_string().contains("acme"));
    assert_eq!(receiver.requests().len(), 1, "a list redrove a letter");
    tokio::time::timeout(Duration::from_secs(30), daemon.kill()).await.unwrap();
}
