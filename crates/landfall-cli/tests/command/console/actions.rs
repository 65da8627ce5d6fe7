//! What people change through the console.

use std::sync::atomic::Ordering;

use landfall_testkit::eventually;
use serde_json::{Value, json};

use super::super::redrives::{count, park, receipt, receiver, wait_until_finished};
use super::super::support::{Daemon, Response, Sandbox, TIMEOUT, on_each};
use super::visitor::{Visitor, figure, hidden_fields};

const PARTS: [&str; 5] = ["succeeded", "failed", "skipped", "missing", "remaining"];

async fn letter(daemon: &Daemon, query: &str) -> Value {
    daemon.get(&format!("/v1/dead-letters?limit=1&{query}")).await.json()["items"][0].clone()
}

fn job_of(response: &Response) -> Value {
    let path = response.header("location").unwrap_or_else(|| panic!("{response:?}"));
    json!(path.strip_prefix("/console/redrives/").unwrap())
}

on_each! {
    /// Rehearse a selection, redrive it, and compare the receipt with the database.
    async fn receipt_of_a_redrive_equals_the_database(sandbox: &Sandbox) {
        let (receiver, healthy) = receiver().await;
        sandbox.configure(&receiver.subscription(""));
        let daemon = sandbox.serve().await;
        park(&daemon, 30).await;
        let visitor = Visitor::default();
        let (frozen, rehearsal) = visitor.follow(&daemon, "/console/rehearse?topic=orders&status=parked").await;
        assert!(frozen.contains("&to="), "the filter has no end: {frozen}");
        assert_eq!((figure(&rehearsal, "ready"), figure(&rehearsal, "matched")), (30, 30));
        assert_eq!(count(&daemon, "status=parked").await, 30, "a rehearsal changed something");

        healthy.store(true, Ordering::SeqCst);
        let fields = [("reason", "the mailer is back"), ("lane", "main")];
        let started = visitor.submit_on(&daemon, &rehearsal, "/console/redrives", &fields).await;
        let id = job_of(&started);
        let again = visitor.submit_on(&daemon, &rehearsal, "/console/redrives", &fields).await;
        assert_eq!(job_of(&again), id, "a form that is submitted twice started two redrives");
        let job = wait_until_finished(&daemon, &id).await;
        let page = visitor.page(&daemon, started.header("location").unwrap()).await;
        for part in PARTS {
            assert_eq!(figure(&page, part), job[part].as_u64().unwrap(), "{part}");
        }
        assert_eq!(PARTS.iter().map(|part| figure(&page, part)).sum::<u64>(), figure(&page, "matched"));
        assert_eq!((figure(&page, "matched"), figure(&page, "succeeded")), (30, 30));
        let done = "SELECT count(*) FROM landfall_dead_letter WHERE status = 'done' AND redrives = 1";
        assert_eq!(sandbox.count(done).await, 30);
        assert_eq!((&job["reason"], &job["actor"]), (&json!("the mailer is back"), &json!("console:admin")));
    }

    /// One letter is ignored, released, edited, redriven; another is discarded. Each change has its audit row.
    async fn one_message_passes_through_every_action(sandbox: &Sandbox) {
        let (receiver, healthy) = receiver().await;
        sandbox.configure(&receiver.subscription(""));
        let daemon = sandbox.serve().await;
        park(&daemon, 2).await;
        let visitor = Visitor::default();
        let id = letter(&daemon, "status=parked&key=k0").await["id"].clone();
        let path = format!("/console/messages/{id}");
        let act = async |verb: &str, fields: &[(&str, &str)]| {
            let response = visitor.submit(&daemon, &path, &format!("{path}/{verb}"), fields).await;
            assert_eq!(response.status, 303, "{verb}: {response:?}");
            letter(&daemon, &format!("id={id}&status=all")).await["status"].as_str().unwrap().to_owned()
        };
        assert_eq!(act("ignore", &[("reason", "wait for finance")]).await, "ignored");
        assert_eq!(act("release", &[("reason", "finance agreed")]).await, "parked");
        let edited = [("payload", "{\"key\": 0, \"n\": 0,\r\n\"total\": 9007199254740993}")];
        assert_eq!(act("edit", &edited).await, "parked");
        let page = visitor.page(&daemon, &path).await;
        assert!(page.contains("&quot;total&quot;: 9007199254740993"), "{page}");
        assert!(page.contains("Before it was edited"), "{page}");
        healthy.store(true, Ordering::SeqCst);
        assert!(["redriving", "done"].contains(&act("redrive", &[]).await.as_str()));
        eventually(TIMEOUT, "the key", async || count(&daemon, "key=k0&status=open").await == 0).await;
        let bodies = receiver.bodies();
        assert!(bodies.iter().any(|body| body == "{\"key\": 0, \"n\": 0,\n\"total\": 9007199254740993}"), "{bodies:?}");

        let other = letter(&daemon, "status=parked&key=k1").await["id"].clone();
        let path = format!("/console/messages/{other}");
        let discarded = visitor.submit(&daemon, &path, &format!("{path}/discard"), &[("reason", "a test order")]).await;
        assert_eq!(discarded.status, 303, "{discarded:?}");
        eventually(TIMEOUT, "the next of its key", async || count(&daemon, "key=k1&status=open").await == 0).await;
        let audit = visitor.page(&daemon, "/console/audit?actor=console%3Aadmin").await;
        for action in ["ignore", "release", "edit", "redrive", "discard"] {
            assert!(audit.contains(&format!("<code>{action}</code>")), "{action}: {audit}");
        }
    }
}

/// Two operators: the second one acts on what has changed, and gets a conflict instead of an effect.
#[tokio::test]
async fn stale_form_is_a_conflict() {
    let sandbox = Sandbox::new();
    let (receiver, _healthy) = receiver().await;
    sandbox.configure(&receiver.subscription(""));
    let daemon = sandbox.serve().await;
    park(&daemon, 2).await;
    let visitor = Visitor::default();
    let id = letter(&daemon, "status=parked&key=k0").await["id"].clone();
    let path = format!("/console/messages/{id}");
    let (seen, action) = (visitor.page(&daemon, &path).await, |verb: &str| format!("{path}/{verb}"));
    let edited = visitor.submit_on(&daemon, &seen, &action("edit"), &[("payload", "{\"n\": 7}")]).await;
    assert_eq!(edited.status, 303, "{edited:?}");
    let fields = [("payload", "{\"n\": 8}"), ("reason", "r")];
    for verb in ["edit", "ignore", "discard", "redrive"] {
        let conflict = visitor.submit_on(&daemon, &seen, &action(verb), &fields).await;
        assert_eq!(conflict.status, 409, "{verb}: {conflict:?}");
        assert!(conflict.body.contains("was edited since you looked") && conflict.body.contains("Nothing was changed"));
    }
    let seen = visitor.page(&daemon, &path).await;
    assert_eq!(visitor.submit_on(&daemon, &seen, &action("ignore"), &fields).await.status, 303);
    for verb in ["redrive", "discard", "edit", "ignore"] {
        let conflict = visitor.submit_on(&daemon, &seen, &action(verb), &fields).await;
        assert_eq!(conflict.status, 409, "{verb}: {conflict:?}");
        assert!(conflict.body.contains("was parked when you looked, and is ignored now"), "{conflict:?}");
    }
    let invalid = visitor
        .page(&daemon, &format!("/console/messages/{}", letter(&daemon, "status=parked&key=k1").await["id"]))
        .await;
    let other = letter(&daemon, "status=parked&key=k1").await["id"].clone();
    let broken = [("payload", "{\"n\": ")];
    let refused = visitor.submit_on(&daemon, &invalid, &format!("/console/messages/{other}/edit"), &broken).await;
    assert_eq!(refused.status, 400, "{refused:?}");
    let audit = "SELECT count(*) FROM landfall_audit WHERE actor = 'console:admin'";
    assert_eq!(sandbox.count(audit).await, 2, "a refused form changed something");
}

/// What matches has changed between the rehearsal and the form.
#[tokio::test]
async fn changed_selection_is_a_conflict() {
    let sandbox = Sandbox::new();
    let (receiver, _healthy) = receiver().await;
    sandbox.configure(&receiver.subscription(""));
    let daemon = sandbox.serve().await;
    park(&daemon, 2).await;
    let visitor = Visitor::default();
    let (_, seen) = visitor.follow(&daemon, "/console/rehearse?topic=orders&status=parked").await;
    let id = letter(&daemon, "status=parked").await["id"].clone();
    let ignored = daemon.post(&format!("/v1/dead-letters/{id}/ignore"), r#"{"actor": "ben"}"#).await;
    assert_eq!(ignored.status, 200, "{ignored:?}");
    let refused = visitor.submit_on(&daemon, &seen, "/console/redrives", &[("reason", "r")]).await;
    assert_eq!(refused.status, 409, "{refused:?}");
    assert!(refused.body.contains("2 messages matched when you looked, and 1 match now"), "{refused:?}");
    assert!(daemon.get("/v1/redrives").await.json()["items"].as_array().unwrap().is_empty());
    // Messages that fail later are not part of the selection.
    let (frozen, _) = visitor.follow(&daemon, "/console/rehearse?topic=orders&status=parked").await;
    daemon.send(r#"{"topic":"orders","key":"late","payload":1}"#).await;
    eventually(TIMEOUT, "the late letter", async || count(&daemon, "key=late").await == 1).await;
    assert_eq!(figure(&visitor.page(&daemon, &frozen).await, "matched"), 1);
    for empty in ["/console/rehearse", "/console/rehearse?to=2030-01-01T00:00:00Z", "/console/rehearse?ids=x"] {
        assert_eq!(visitor.get(&daemon, empty).await.status, 400, "{empty}");
    }
}

/// Above the bound of a dry run, the count is still the one of the selection: typed, compared, and redriven.
#[tokio::test]
async fn large_selection_is_counted_exactly() {
    const ROWS: u64 = 10_050;
    let sandbox = Sandbox::new();
    let daemon = sandbox.serve().await;
    let rows = format!(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})
         INSERT INTO landfall_dead_letter
             (consumer_group, message_id, topic, kind, mode, headers, created_at, status, error_code, error, attempts,
              payload)
         SELECT 'mailer', '0197b1c2-8f3e-7c11-9d2b-' || printf('%012x', i), 'bulk', 'message', 'effectively-once',
             '{{}}', 1, 'parked', 'REJECTED', 'no', 1, x'31' FROM n"
    );
    sandbox.sql(&rows).await;
    let (visitor, path) = (Visitor::default(), "/console/rehearse?topic=bulk&status=parked");
    let (frozen, seen) = visitor.follow(&daemon, path).await;
    assert_eq!((figure(&seen, "matched"), figure(&seen, "ready")), (ROWS, 10_000));
    assert!(seen.contains("The predictions are of the first 10,000 messages."), "{seen}");

    sandbox.sql("UPDATE landfall_dead_letter SET status = 'done' WHERE id = 1").await;
    let submit = async |page: &str, typed: &str| {
        let fields = [("reason", "the mailer is back"), ("typed", typed)];
        visitor.submit_on(&daemon, page, "/console/redrives", &fields).await
    };
    let changed = submit(&seen, "10050").await;
    assert_eq!(changed.status, 409, "{changed:?}");
    assert!(changed.body.contains("10050 messages matched when you looked, and 10049 match now"), "{changed:?}");
    let seen = visitor.page(&daemon, &frozen).await;
    assert_eq!(submit(&seen, "10000").await.status, 400, "the bound of a dry run was accepted as the count");
    assert!(daemon.get("/v1/redrives").await.json()["items"].as_array().unwrap().is_empty());
    let started = submit(&seen, "10049").await;
    assert_eq!(receipt(&daemon, &job_of(&started)).await["matched"], 10_049);
    assert_eq!(sandbox.count("SELECT count(*) FROM landfall_redrive_item").await, 10_049);
}

/// Two operators: one pauses, and what the other saw is no longer so.
#[tokio::test]
async fn stale_control_of_a_redrive_is_a_conflict() {
    let sandbox = Sandbox::new();
    let (receiver, _healthy) = receiver().await;
    sandbox.configure(&receiver.subscription(""));
    let daemon = sandbox.serve().await;
    park(&daemon, 10).await;
    let visitor = Visitor::default();
    let (_, rehearsal) = visitor.follow(&daemon, "/console/rehearse?topic=orders&status=parked").await;
    let fields = [("reason", "slowly"), ("rate", "1"), ("ramp", "yes")];
    let started = visitor.submit_on(&daemon, &rehearsal, "/console/redrives", &fields).await;
    let path = started.header("location").unwrap().to_owned();
    let action = format!("{path}/control");
    let seen = visitor.page(&daemon, &path).await;
    let paused = visitor.submit_on(&daemon, &seen, &action, &[("control", "pause")]).await;
    assert_eq!(paused.status, 303, "{paused:?}");
    for control in ["pause", "stop"] {
        let conflict = visitor.submit_on(&daemon, &seen, &action, &[("control", control)]).await;
        assert_eq!(conflict.status, 409, "{control}: {conflict:?}");
        assert!(conflict.body.contains("was running when you looked, and is paused now"), "{conflict:?}");
    }
    assert_eq!(receipt(&daemon, &job_of(&started)).await["state"], "paused");
}

/// A redrive is paused, resumed and stopped; after the stop nothing more is dispatched.
#[tokio::test]
async fn redrive_is_controlled_from_its_page() {
    let sandbox = Sandbox::new();
    let (receiver, healthy) = receiver().await;
    sandbox.configure(&receiver.subscription(""));
    let daemon = sandbox.serve().await;
    park(&daemon, 30).await;
    healthy.store(true, Ordering::SeqCst);
    let visitor = Visitor::default();
    let (_, rehearsal) = visitor.follow(&daemon, "/console/rehearse?topic=orders&status=parked").await;
    let fields = [("reason", "slowly"), ("rate", "2"), ("ramp", "yes")];
    let started = visitor.submit_on(&daemon, &rehearsal, "/console/redrives", &fields).await;
    let (path, id) = (started.header("location").unwrap().to_owned(), job_of(&started));
    let control = async |verb: &str| {
        let done = visitor.submit(&daemon, &path, &format!("{path}/control"), &[("control", verb)]).await;
        assert_eq!(done.status, 303, "{done:?}");
        receipt(&daemon, &id).await["state"].as_str().unwrap().to_owned()
    };
    assert_eq!(control("pause").await, "paused");
    assert_eq!(control("resume").await, "running");
    assert_eq!(control("stop").await, "stopped");
    let page = visitor.page(&daemon, &path).await;
    assert!(!page.contains("/control\""), "a stopped redrive offers controls: {page}");
    eventually(TIMEOUT, "letters in flight", async || count(&daemon, "status=redriving").await == 0).await;
    let before = count(&daemon, "status=parked").await;
    eventually(TIMEOUT, "the outcomes", async || receipt(&daemon, &id).await["remaining"] == before).await;
    assert!(before > 0, "the redrive was over before the stop");
    let hidden = hidden_fields(
        &visitor.page(&daemon, "/console/rehearse?status=parked&to=2090-01-01T00:00:00Z").await,
        "/console/redrives",
    );
    assert!(hidden.iter().any(|(name, value)| name == "expected" && *value == before.to_string()), "{hidden:?}");
}
