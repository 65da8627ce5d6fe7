//! Half messages under faults: an endpoint that changes its answer, a database that restarts, a wrong clock.

use std::process::Command as Plain;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use landfall_testkit::{current_test, eventually, not_run};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::support::{Daemon, Receiver, Sandbox, TIMEOUT, on_each, response};

const QUICK: &str = "[check_back]\ninterval_ms = 20\nimmunity_ms = 0\ntimeout_ms = 2000\nbackoff_first_ms = 10\n\
                     backoff_cap_ms = 20\nmax_checks = 1000000\nallow_private_addresses = true\n";

fn half(number: u32, check_back: Value) -> Value {
    json!({
        "topic": "orders", "key": "k", "payload": number, "business_type": "order",
        "business_id": number.to_string(), "check_back": check_back
    })
}

/// A half message whose check-back is not due during a test.
fn immune(number: u32, check_back: Value) -> Value {
    let mut half = half(number, check_back);
    half["check_after_s"] = json!(3600);
    half
}

/// Commits the local transaction with this id, and prepares afterwards: the commit at the coordinator is lost.
async fn lose_commit(sandbox: &Sandbox, daemon: &Daemon, number: u32, check_back: Value) -> String {
    let id = landfall::MessageId::new().to_string();
    sandbox.sql(&format!("INSERT INTO landfall_barrier (id) VALUES ('{id}')")).await;
    let mut half = half(number, check_back);
    half["id"] = json!(id);
    assert_eq!(post(daemon, &half).await, id);
    id
}

async fn post(daemon: &Daemon, half: &Value) -> String {
    let response = daemon.post("/v1/half-messages", half.to_string()).await;
    assert_eq!(response.status, 201, "{response:?}");
    response.json()["id"].as_str().unwrap().to_owned()
}

async fn prepare(daemon: &Daemon, number: u32, check_back: Value) -> String {
    post(daemon, &half(number, check_back)).await
}

async fn decide(daemon: &Daemon, id: &str, verb: &str) -> u16 {
    daemon.post(&format!("/v1/half-messages/{id}/{verb}"), "").await.status
}

async fn wait_for_state(daemon: &Daemon, id: &str, wanted: &str) -> Value {
    let path = format!("/v1/half-messages/{id}");
    let mut row = Value::Null;
    eventually(TIMEOUT, wanted, async || {
        let response = daemon.get(&path).await;
        row = if response.status == 200 { response.json() } else { Value::Null };
        row["state"] == wanted
    })
    .await;
    row
}

async fn published(sandbox: &Sandbox) -> Vec<String> {
    let finished = sandbox.run(&["topic", "tail", "orders", "--json"]).await;
    let lines = if finished.code == 1 { Vec::new() } else { finished.objects() };
    let mut ids: Vec<String> = lines.iter().map(|line| line["id"].as_str().unwrap().to_owned()).collect();
    ids.sort_unstable();
    ids
}

fn sorted<const N: usize>(mut ids: [&String; N]) -> Vec<String> {
    ids.sort_unstable();
    ids.map(String::clone).to_vec()
}

async fn value(daemon: &Daemon, name: &str) -> Option<f64> {
    let body = daemon.get("/metrics").await.body;
    let line = body.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map(|value| value.parse().unwrap())
}

/// Each request gets the opposite of the answer before. Every message has one verdict, which the sender's opposite
/// decision does not change.
#[tokio::test]
async fn flipping_answer_keeps_the_first_verdict() {
    let receiver = Receiver::start(|number, _| {
        response(200, "", if number % 2 == 0 { r#"{"state":"committed"}"# } else { r#"{"state":"rolled_back"}"# })
    })
    .await;
    let sandbox = Sandbox::new();
    sandbox.configure(QUICK);
    let daemon = sandbox.serve().await;
    // A second coordinator on the same database; each embedded log belongs to one daemon.
    let other = ["serve", "--listen", "127.0.0.1:0", "--roles", "check-back", "--broker-url", "log:other"];
    let _other = Daemon::start(sandbox.command(&other)).await;
    let (mut committed, mut contradicted) = (Vec::new(), 0);
    for number in 0..10 {
        let id = prepare(&daemon, number, json!({"http": format!("http://{}/", receiver.address)})).await;
        let path = format!("/v1/half-messages/{id}");
        let mut state = Value::Null;
        eventually(TIMEOUT, "a verdict", async || {
            state = daemon.get(&path).await.json()["state"].clone();
            state == "committed" || state == "rolled_back"
        })
        .await;
        let is_committed = state == "committed";
        let opposite = if is_committed { "rollback" } else { "commit" };
        assert_eq!(decide(&daemon, &id, opposite).await, 409);
        contradicted += 1;
        assert_eq!(daemon.get(&path).await.json()["state"], state, "the first verdict stays");
        if is_committed {
            committed.push(id);
        }
    }
    committed.sort_unstable();
    assert!((1..10).contains(&committed.len()), "{committed:?}");
    eventually(TIMEOUT, "the committed messages", async || published(&sandbox).await == committed).await;
    assert_eq!(receiver.requests().len(), 10, "no message is asked about after its verdict");
    assert_eq!(value(&daemon, "landfall_half_contradicted").await, Some(f64::from(contradicted)));
    let verdicts = "SELECT count(*) FROM landfall_audit WHERE action IN ('half-commit', 'half-rollback')";
    assert_eq!(sandbox.count(verdicts).await, 10);
}

/// The server is killed between prepare and decision, and while the coordinator asks.
#[tokio::test]
async fn restarted_database_loses_no_half_message() {
    let Some(sandbox) = Sandbox::on_own_postgres().await else { return };
    sandbox.configure(&format!("{QUICK}databases = {{ shop = \"env:LANDFALL_DATABASE_URL\" }}\n"));
    let daemon = sandbox.serve().await;
    let late = json!({"database": "shop"});
    let immune = post(&daemon, &immune(0, late.clone())).await;
    // The business commits; its commit at the coordinator is lost, because the server dies.
    let lost = lose_commit(&sandbox, &daemon, 1, late.clone()).await;
    sandbox.server().kill_9().await.unwrap();
    let refused = daemon.post(&format!("/v1/half-messages/{immune}/commit"), "").await;
    assert!(matches!(refused.status, 503 | 504), "{refused:?}");
    sandbox.server().restart().await.unwrap();
    eventually(TIMEOUT, "the repeated commit", async || decide(&daemon, &immune, "commit").await == 200).await;
    wait_for_state(&daemon, &lost, "committed").await;
    // Prepared after the restart, without a local transaction.
    let discarded = prepare(&daemon, 2, late).await;
    wait_for_state(&daemon, &discarded, "rolled_back").await;
    let expected = sorted([&immune, &lost]);
    eventually(TIMEOUT, "both committed messages", async || published(&sandbox).await == expected).await;
    assert!(sandbox.try_sql(&format!("INSERT INTO landfall_barrier (id) VALUES ('{discarded}')")).await.is_err());
}

/// Returns the library that fakes the time; `None` without faketime. Its own command would fork, so that a kill would
/// not reach the daemon.
fn faketime() -> Option<String> {
    let found = Plain::new("faketime").args(["-m", "-f", "+0", "printenv", "LD_PRELOAD"]).output().ok()?;
    Some(String::from_utf8(found.stdout).unwrap().trim().to_owned())
}

/// Returns a daemon with a clock that is wrong by this much.
async fn serve_at(sandbox: &Sandbox, library: &str, offset: &str) -> Daemon {
    let mut wrong = sandbox.command(&["serve", "--listen", "127.0.0.1:0"]);
    // Timers follow the monotonic clock, which no wrong clock changes.
    wrong.env("LD_PRELOAD", library).env("FAKETIME", offset).env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    Daemon::start(wrong).await
}

on_each! {
    /// One daemon is an hour ahead, and another an hour behind; SQLite takes its time from them.
    async fn clock_wrong_by_an_hour_changes_no_verdict(sandbox: &Sandbox) {
        let Some(library) = faketime() else {
            return not_run(&current_test(), "faketime is not installed; on Debian: apt install faketime");
        };
        sandbox.configure(&format!("{QUICK}databases = {{ shop = \"{}\" }}\n", shop(sandbox)));
        assert_eq!(sandbox.run(&["migrate"]).await.code, 0);
        let (mut kept, mut discarded) = (Vec::new(), Vec::new());
        for offset in ["+1h", "-1h"] {
            let daemon = serve_at(sandbox, &library, offset).await;
            let target = json!({"database": "shop"});
            // Committed by the sender; committed without a commit at the coordinator; never committed.
            let decided = prepare(&daemon, 1, json!({"http": "http://127.0.0.1:9/"})).await;
            assert_eq!(decide(&daemon, &decided, "commit").await, 200);
            let lost = lose_commit(sandbox, &daemon, 2, target.clone()).await;
            let open = prepare(&daemon, 3, target).await;
            wait_for_state(&daemon, &lost, "committed").await;
            wait_for_state(&daemon, &open, "rolled_back").await;
            kept.extend([decided, lost]);
            discarded.push(open);
            daemon.kill().await;
        }
        let daemon = sandbox.serve().await;
        kept.sort_unstable();
        eventually(TIMEOUT, "the committed messages", async || published(sandbox).await == kept).await;
        for id in &discarded {
            assert_eq!(decide(&daemon, id, "commit").await, 409);
            assert!(sandbox.try_sql(&format!("INSERT INTO landfall_barrier (id) VALUES ('{id}')")).await.is_err());
        }
    }
}

/// The sandbox's own database is the business database too.
fn shop(sandbox: &Sandbox) -> String {
    let command = sandbox.command(&[]);
    let url = command.as_std().get_envs().find(|(name, _)| *name == "LANDFALL_DATABASE_URL");
    match url.and_then(|(_, value)| value) {
        Some(_) => "env:LANDFALL_DATABASE_URL".into(),
        None => format!("sqlite:{}", sandbox.data().join("landfall.db").display()),
    }
}

#[tokio::test]
async fn half_messages_are_counted_by_what_happens_to_them() {
    let receiver = Receiver::start(|_, request| {
        response(200, "", if request.body.contains("\"3\"") { r#"{"state":"committed"}"# } else { "{}" })
    })
    .await;
    let sandbox = Sandbox::new();
    sandbox.configure(&QUICK.replace("max_checks = 1000000", "max_checks = 2"));
    let daemon = sandbox.serve().await;
    let target = json!({"http": format!("http://{}/", receiver.address)});
    for verb in ["commit", "rollback"] {
        let id = post(&daemon, &immune(9, target.clone())).await;
        assert_eq!(decide(&daemon, &id, verb).await, 200);
    }
    let checked = prepare(&daemon, 3, target.clone()).await;
    let parked = prepare(&daemon, 4, target).await;
    wait_for_state(&daemon, &checked, "committed").await;
    wait_for_state(&daemon, &parked, "parked").await;
    sandbox.sql("UPDATE landfall_half_message SET prepared_at = prepared_at - 3600000 WHERE state = 'parked'").await;
    for (name, expected) in [
        ("landfall_half_prepared_total", 4.0),
        ("landfall_half_parked_total", 1.0),
        (r#"landfall_half_decided_total{verdict="committed",by="sender"}"#, 1.0),
        (r#"landfall_half_decided_total{verdict="rolled_back",by="sender"}"#, 1.0),
        (r#"landfall_half_decided_total{verdict="committed",by="check-back"}"#, 1.0),
        (r#"landfall_half_checks_total{answer="committed"}"#, 1.0),
        (r#"landfall_half_checks_total{answer="unknown"}"#, 2.0),
        (r#"landfall_half_messages{state="parked"}"#, 1.0),
        (r#"landfall_half_messages{state="prepared"}"#, 0.0),
    ] {
        eventually(TIMEOUT, name, async || value(&daemon, name).await == Some(expected)).await;
    }
    let age = value(&daemon, "landfall_half_oldest_undecided_seconds").await;
    assert!(age.is_some_and(|age| (3600.0..3700.0).contains(&age)), "{age:?}");
    let documented = include_str!("../../../../docs/reference/metrics.md");
    let body = daemon.get("/metrics").await.body;
    let names = body.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    for name in names.filter(|name| name.starts_with("landfall_half")) {
        assert!(documented.contains(&format!("`{name}")), "{name} is not documented");
    }
}

/// A coordinator is paused with an answer in its socket. Its claim expires, another coordinator gets the opposite
/// answer and decides. The paused one comes back with its own.
#[tokio::test]
async fn paused_coordinator_does_not_change_the_verdict() {
    let Some(sandbox) = Sandbox::on_postgres().await else { return };
    let paused = Arc::new(AtomicI32::new(0));
    let pid = paused.clone();
    let receiver = Receiver::start(move |number, _| match number {
        0 => {
            kill(Pid::from_raw(pid.load(Ordering::SeqCst)), Signal::SIGSTOP).unwrap();
            response(200, "", r#"{"state":"rolled_back"}"#)
        }
        _ => response(200, "", r#"{"state":"committed"}"#),
    })
    .await;
    // The first answer stays in time, and the test ends the claim.
    sandbox.configure(&QUICK.replace("timeout_ms = 2000", "timeout_ms = 600000"));
    let other = ["serve", "--listen", "127.0.0.1:0", "--roles", "check-back", "--broker-url", "log:other"];
    let first = Daemon::start(sandbox.command(&other)).await;
    paused.store(first.pid(), Ordering::SeqCst);
    let mut one = half(1, json!({"http": format!("http://{}/", receiver.address)}));
    one["id"] = json!(landfall::MessageId::new().to_string());
    // The answer to the prepare may be lost with the pause.
    let prepare = tokio::spawn({
        let (address, body) = (first.address, one.to_string());
        async move { super::support::post(address, "/v1/half-messages", body).await }
    });
    eventually(TIMEOUT, "the first check-back", async || receiver.requests().len() == 1).await;
    sandbox.sql("UPDATE landfall_half_message SET next_check_at = now() - interval '1 second'").await;
    let second = sandbox.serve().await;
    let id = one["id"].as_str().unwrap();
    assert_eq!(wait_for_state(&second, id, "committed").await["contradicted_at"], Value::Null);
    first.signal(Signal::SIGCONT);
    let path = format!("/v1/half-messages/{id}");
    eventually(TIMEOUT, "the contradiction", async || second.get(&path).await.json()["contradicted_by"] != Value::Null)
        .await;
    let row = second.get(&path).await.json();
    assert_eq!((&row["state"], &row["contradicted_by"]), (&json!("committed"), &json!("check-back")), "{row}");
    eventually(TIMEOUT, "the message", async || published(&sandbox).await == [id]).await;
    for (action, expected) in [("half-commit", 1), ("half-rollback", 0), ("half-contradiction", 1)] {
        let count = format!("SELECT count(*) FROM landfall_audit WHERE action = '{action}'");
        assert_eq!(sandbox.count(&count).await, expected, "{action}");
    }
    drop(prepare);
}
