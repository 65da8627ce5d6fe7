//! What a redrive must not do, and the proof that the check finds each of it.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use landfall_testkit::eventually;
use serde_json::{Value, json};

use super::redrives::{accepted, count, park, receipt, receiver, start, wait_until_finished};
use super::support::{Daemon, Receiver, Sandbox, TIMEOUT};

/// What a run was about.
pub(crate) struct Run<'a> {
    pub(crate) sandbox: &'a Sandbox,
    pub(crate) daemon: &'a Daemon,
    pub(crate) receiver: &'a Receiver,
    /// Requests to the receiver before the redrive.
    pub(crate) since: usize,
    /// The jobs that were started.
    pub(crate) jobs: Vec<Value>,
    /// The keys that were selected.
    pub(crate) keys: BTreeSet<usize>,
}

/// Returns the name of every promise that the run broke.
pub(crate) async fn violations(run: &Run<'_>) -> Vec<&'static str> {
    let mut broken = Vec::new();
    if accepted(run.receiver, run.since).values().any(|numbers| !numbers.is_sorted()) {
        broken.push("order");
    }
    let mut is_forgotten = false;
    let mut is_wrong = false;
    for job in &run.jobs {
        let id = job["id"].as_str().unwrap();
        if run.daemon.get(&format!("/v1/redrives/{id}")).await.status != 200 {
            is_forgotten = true;
            continue;
        }
        let shown = receipt(run.daemon, &job["id"]).await;
        let items = format!("SELECT count(*) FROM landfall_redrive_item WHERE redrive_id = '{id}'");
        let done = format!(
            "SELECT count(*) FROM landfall_dead_letter WHERE redrive_id = '{id}' AND status = 'done' AND NOT discarded"
        );
        is_forgotten |= run.sandbox.count(&items).await != shown["matched"].as_i64().unwrap();
        is_wrong |= run.sandbox.count(&done).await != shown["succeeded"].as_i64().unwrap();
    }
    broken.extend(is_forgotten.then_some("forgotten"));
    broken.extend(is_wrong.then_some("receipt"));
    let selected: Vec<_> = run.keys.iter().map(|key| format!("'k{key}'")).collect();
    let others = format!(
        "SELECT count(*) FROM landfall_dead_letter WHERE redrives > 0 AND {} NOT IN ({})",
        run.sandbox.key(),
        selected.join(", ")
    );
    if run.sandbox.count(&others).await > 0 {
        broken.push("selection");
    }
    // Each letter takes effect once.
    let effects = "SELECT count(*) FROM landfall_audit WHERE action = 'effect'";
    let done = "SELECT count(*) FROM landfall_dead_letter WHERE status = 'done' AND NOT discarded";
    if run.sandbox.count(effects).await != run.sandbox.count(done).await {
        broken.push("doubles");
    }
    broken
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bug {
    None,
    IgnoresHeldKeys,
    CountsSendsAsSuccesses,
    WidensItsFilter,
    ForgetsItsJob,
}

/// Runs a redrive of one of three keys with the bug, and returns what the check finds.
async fn run_with(bug: Bug) -> Vec<&'static str> {
    let sandbox = Sandbox::new();
    let (receiver, healthy) = receiver().await;
    sandbox.configure(&receiver.subscription(""));
    let mut daemon = sandbox.serve().await;
    park(&daemon, 3).await;
    let since = receiver.requests().len();
    healthy.store(bug != Bug::CountsSendsAsSuccesses, Ordering::SeqCst);
    if bug == Bug::IgnoresHeldKeys {
        sandbox.sql("UPDATE landfall_dead_letter SET holds_key = 0").await;
        eventually(TIMEOUT, "the waiting letters", async || count(&daemon, "status=waiting").await == 0).await;
    }
    let filter = if bug == Bug::WidensItsFilter { json!({"topic": "orders"}) } else { json!({"key": "k0"}) };
    let job = start(&daemon, "the-job", &json!({"filter": filter, "lane": "main"})).await;
    match bug {
        Bug::ForgetsItsJob => {
            daemon.kill().await;
            sandbox.sql("DELETE FROM landfall_redrive_item").await;
            sandbox.sql("DELETE FROM landfall_redrive").await;
            daemon = sandbox.serve().await;
        }
        Bug::CountsSendsAsSuccesses => {
            wait_until_finished(&daemon, &job["id"]).await;
            sandbox.sql("UPDATE landfall_redrive SET succeeded = matched, failed = 0").await;
        }
        _ => {
            wait_until_finished(&daemon, &job["id"]).await;
            // The letters of the other keys stay open.
            let open = match bug {
                Bug::None => 6,
                Bug::IgnoresHeldKeys => 2,
                _ => 0,
            };
            eventually(TIMEOUT, "the drained keys", async || count(&daemon, "status=open").await <= open).await;
        }
    }
    let keys = BTreeSet::from([0]);
    let run = Run { sandbox: &sandbox, daemon: &daemon, receiver: &receiver, since, jobs: vec![job], keys };
    violations(&run).await
}

#[tokio::test]
async fn planted_redrive_bugs_are_found() {
    for (bug, expected) in [
        (Bug::None, None),
        (Bug::IgnoresHeldKeys, Some("order")),
        (Bug::CountsSendsAsSuccesses, Some("receipt")),
        (Bug::WidensItsFilter, Some("selection")),
        (Bug::ForgetsItsJob, Some("forgotten")),
    ] {
        let found = run_with(bug).await;
        match expected {
            None => assert!(found.is_empty(), "a correct redrive is blamed: {found:?}"),
            Some(expected) => assert!(found.contains(&expected), "{bug:?} is not found, but {found:?}"),
        }
    }
}
