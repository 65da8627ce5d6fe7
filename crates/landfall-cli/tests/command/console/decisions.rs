//! What people decide about alerts, failures and keys through the console.

use landfall_testkit::eventually;
use serde_json::{Value, json};

use super::super::redrives::{park, receiver};
use super::super::support::{Daemon, Receiver, Sandbox, TIMEOUT, alert_in, webhook};
use super::visitor::{Visitor, tokens};

async fn items(daemon: &Daemon, path: &str) -> Vec<Value> {
    daemon.get(path).await.json()["items"].as_array().unwrap().clone()
}

/// A firing alert is listed with its notice, muted on its page, and the mute is ended there.
#[tokio::test]
async fn alert_is_listed_and_muted() {
    let sandbox = Sandbox::new();
    let (pager, (receiver, _healthy)) = (Receiver::accepting().await, receiver().await);
    sandbox.configure(&format!("{}{}", webhook(pager.address), receiver.subscription("")));
    let daemon = sandbox.serve().await;
    let visitor = Visitor::default();
    let empty = visitor.page(&daemon, "/console/alerts").await;
    assert!(empty.contains("No alert fires.") && empty.contains("No notice was made yet."), "{empty}");
    park(&daemon, 1).await;
    let alert = alert_in(&sandbox, "dead-letter", "orders", "firing").await;
    let path = format!("/console/alerts/{}", alert["id"].as_str().unwrap());
    eventually(TIMEOUT, "the notice", async || {
        visitor.page(&daemon, "/console/alerts").await.contains("<span class=\"badge good\">delivered</span>")
    })
    .await;
    let list = visitor.page(&daemon, "/console/alerts").await;
    assert!(list.contains(&format!("href=\"{path}\"")) && list.contains("group=mailer topic=orders"), "{list}");

    let (seen, action) = (visitor.page(&daemon, &path).await, format!("{path}/mute"));
    let fields = [("verb", "mute"), ("period", "8"), ("reason", "the bank is down")];
    let muted = visitor.submit_on(&daemon, &seen, &action, &fields).await;
    assert_eq!((muted.status, muted.header("location")), (303, Some(path.as_str())), "{muted:?}");
    let conflict = visitor.submit_on(&daemon, &seen, &action, &fields).await;
    assert_eq!(conflict.status, 409, "{conflict:?}");
    let page = visitor.page(&daemon, &path).await;
    assert!(page.contains("<dt>Muted until</dt>") && page.contains("in 7 h"), "{page}");
    for (verb, period, reason) in [("mute", "9", "r"), ("x", "8", "r"), ("end", "8", "")] {
        let fields = [("verb", verb), ("period", period), ("reason", reason)];
        let refused = visitor.submit_on(&daemon, &page, &action, &fields).await;
        assert_eq!(refused.status, 400, "{fields:?}: {refused:?}");
    }
    let ended = visitor.submit_on(&daemon, &page, &action, &[("verb", "end"), ("reason", "it is back")]).await;
    assert_eq!(ended.status, 303, "{ended:?}");
    let page = visitor.page(&daemon, &path).await;
    assert!(!page.contains("<dt>Muted until</dt>"), "{page}");
    let audit = visitor.page(&daemon, "/console/audit").await;
    assert!(audit.contains("the bank is down") && audit.contains("it is back"), "{audit}");
    assert_eq!(visitor.get(&daemon, "/console/alerts/0197b1c2-8f3e-7c11-9d2b-6a5f0c3e9d10").await.status, 404);
}

/// A failure is acknowledged, noted, muted, resolved and reopened; what another operator changed is a conflict.
#[tokio::test]
async fn failure_is_decided_on_its_page() {
    let sandbox = Sandbox::new();
    let (receiver, _healthy) = receiver().await;
    sandbox.configure(&receiver.subscription(""));
    let daemon = sandbox.serve().await;
    park(&daemon, 2).await;
    let visitor = Visitor::default();
    let group = async || items(&daemon, "/v1/dead-letter-groups").await[0].clone();
    let path = format!("/console/failures/{}", group().await["fingerprint"].as_str().unwrap());
    let action = format!("{path}/decide");
    let list = visitor.page(&daemon, "/console/failures").await;
    assert!(list.contains(&format!("href=\"{path}\"")) && list.contains(">open</span>"), "{list}");
    let first = visitor.page(&daemon, &path).await;
    let decide = async |verb: &str, note: &str| {
        let fields = [("verb", verb), ("note", note), ("period", "24")];
        let done = visitor.submit(&daemon, &path, &action, &fields).await;
        assert_eq!((done.status, done.header("location")), (303, Some(path.as_str())), "{verb}: {done:?}");
        let group = group().await;
        (group["state"].as_str().unwrap().to_owned(), group["note"].as_str().unwrap().to_owned())
    };
    let is = |state: &str, note: &str| (state.to_owned(), note.to_owned());
    assert_eq!(decide("acknowledge", "see INC-42").await, is("acknowledged", "see INC-42"));
    for verb in ["acknowledge", "resolve", "mute", "reopen", "note"] {
        let fields = [("verb", verb), ("note", "mine"), ("period", "24")];
        let conflict = visitor.submit_on(&daemon, &first, &action, &fields).await;
        assert_eq!(conflict.status, 409, "{verb}: {conflict:?}");
        assert!(conflict.body.contains("was changed since you looked, and is acknowledged now"), "{conflict:?}");
    }
    assert_eq!(decide("note", "INC-43 <b>").await, is("acknowledged", "INC-43 <b>"));
    let list = visitor.page(&daemon, "/console/failures").await;
    assert!(list.contains("Note: INC-43 &lt;b&gt;") && list.contains(">acknowledged</span>"), "{list}");
    assert_eq!(decide("mute", "INC-43").await.0, "muted");
    assert!(visitor.page(&daemon, "/console/failures").await.contains("in 23 h"));
    assert_eq!(decide("resolve", "").await, is("resolved", "INC-43"));
    assert_eq!(decide("reopen", "").await, is("open", "INC-43"));
    assert_eq!(decide("note", "").await, is("open", ""));
    assert_eq!(visitor.submit(&daemon, &path, &action, &[("verb", "regress")]).await.status, 400);
    assert_eq!(visitor.get(&daemon, "/console/failures/1-0123456789abcdef").await.status, 404);
    assert_eq!(sandbox.count("SELECT count(*) FROM landfall_audit WHERE actor = 'console:admin'").await, 6);
}

/// A key is blocked, allowed and released from its rule on its page.
#[tokio::test]
async fn key_is_blocked_and_allowed_on_its_page() {
    let sandbox = Sandbox::new();
    let (receiver, _healthy) = receiver().await;
    sandbox.configure(&receiver.subscription(""));
    let daemon = sandbox.serve().await;
    park(&daemon, 1).await;
    let (visitor, path, action) = (Visitor::default(), "/console/keys?topic=orders&key=k0", "/console/keys/rule");
    let first = visitor.page(&daemon, path).await;
    let change = async |verb: &str| {
        let fields = [("verb", verb), ("period", "24"), ("reason", "a poison order")];
        let done = visitor.submit(&daemon, path, action, &fields).await;
        assert_eq!((done.status, done.header("location")), (303, Some(path)), "{verb}: {done:?}");
        items(&daemon, "/v1/key-rules").await
    };
    let rules = change("blocked").await;
    assert_eq!((&rules[0]["key"], &rules[0]["rule"]), (&json!("k0"), &json!("blocked")));
    let page = visitor.page(&daemon, path).await;
    assert!(page.contains("Redrive jobs skip this key, until ") && page.contains("a poison order"), "{page}");
    let fields = [("verb", "allowed"), ("period", "24"), ("reason", "r")];
    let conflict = visitor.submit_on(&daemon, &first, action, &fields).await;
    assert_eq!(conflict.status, 409, "{conflict:?}");
    let (_, rehearsal) = visitor.follow(&daemon, "/console/rehearse?topic=orders&status=parked").await;
    assert!(rehearsal.contains("data-count=\"blocked\""), "{rehearsal}");
    assert_eq!(change("allowed").await[0]["rule"], "allowed");
    assert!(change("none").await.is_empty());
    let refused = visitor.submit(&daemon, path, action, &[("verb", "blocked"), ("period", "24")]).await;
    assert_eq!(refused.status, 400, "a rule without a reason: {refused:?}");
}

/// Viewers see alerts and failures, and no form that decides.
#[tokio::test]
async fn viewer_is_offered_no_decision() {
    let sandbox = Sandbox::new();
    let (receiver, _healthy) = receiver().await;
    sandbox.configure(&receiver.subscription(""));
    let daemon = sandbox.serve().await;
    park(&daemon, 1).await;
    let alert = alert_in(&sandbox, "dead-letter", "orders", "firing").await["id"].as_str().unwrap().to_owned();
    let group = items(&daemon, "/v1/dead-letter-groups").await[0]["fingerprint"].as_str().unwrap().to_owned();
    daemon.kill().await;
    sandbox.configure(&tokens());
    let daemon = sandbox.serve().await;
    let (viewer, operator) = (Visitor::of(&daemon, "viewer").await, Visitor::of(&daemon, "operator").await);
    let alert = format!("/console/alerts/{alert}");
    let group = format!("/console/failures/{group}");
    for path in [alert.as_str(), &group, "/console/keys?topic=orders&key=k0"] {
        let offered = |page: &str| page.contains("class=\"decide\"");
        assert!(!offered(&viewer.page(&daemon, path).await), "{path}");
        assert!(offered(&operator.page(&daemon, path).await), "{path}");
    }
}
