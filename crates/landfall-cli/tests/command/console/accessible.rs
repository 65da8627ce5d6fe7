//! Accessibility, checked by axe-core in a real browser: every page, both themes, a phone and a desktop.

use landfall_testkit::eventually;
use serde_json::{Value, json};

use super::super::redrives::{park, receiver, start};
use super::super::support::{Daemon, Sandbox, TIMEOUT};
use super::browser::Browser;
use super::visitor::{Visitor, tokens};

const AXE: &str = include_str!("axe/axe.min.js");

/// Rules of WCAG 2.2, levels A and AA, and axe's best practices. By default axe leaves out the size of targets, the one
/// rule of 2.2 that it can check.
const RUN: &str = "const done = arguments[0];
    axe.run(document, {resultTypes: ['violations'], rules: {'target-size': {enabled: true}}}).then(
        found => done(found.violations.map(v => v.id + ': ' + v.nodes.slice(0, 3).map(
            n => n.target + ' ' + n.failureSummary).join(' | '))),
        error => done(['axe failed: ' + error]));";

/// Appends two buttons that are too small, side by side.
const SMALL_BUTTONS: &str = "['a', 'b'].forEach(text => {
    const button = document.createElement('button');
    button.textContent = text;
    button.style.cssText = 'min-height: 0; padding: 0; width: 8px; height: 8px';
    document.querySelector('main').append(button);
})";

/// Returns the paths of every page with something on it.
pub(super) async fn full_pages(daemon: &Daemon) -> Vec<(&'static str, String)> {
    park(daemon, 12).await;
    let filter = json!({"topic": "orders", "status": "parked"});
    let body = json!({"filter": filter, "rate_per_s": 1, "reason": "the mailer is back", "actor": "maria"});
    let job = start(daemon, "one", &body).await["id"].as_str().unwrap().to_owned();
    // The redrive fails again, so that its receipt and the history have something to show.
    let failed = async || {
        let job = daemon.get(&format!("/v1/redrives/{job}")).await.json();
        job["failed"].as_u64().unwrap() > 0
    };
    eventually(TIMEOUT, "a failed redrive", failed).await;
    let stop = daemon.post(&format!("/v1/redrives/{job}/stop"), "").await;
    assert_eq!(stop.status, 200, "{stop:?}");
    let items = daemon.get("/v1/dead-letters?status=parked&key=k9").await.json()["items"].clone();
    let id = items[0]["id"].to_string();
    let fingerprint = items[0]["fingerprint"].as_str().unwrap().to_owned();
    let rule = json!({"topic": "orders", "key": "k9", "rule": "blocked", "for_s": 3600, "reason": "poison"});
    let blocked = daemon.post("/v1/key-rules", rule.to_string()).await;
    assert_eq!(blocked.status, 200, "{blocked:?}");
    let firing = async || daemon.get("/v1/alerts?state=firing").await.json()["items"][0]["id"].clone();
    eventually(TIMEOUT, "an alert", async || firing().await.is_string()).await;
    let alert = firing().await.as_str().unwrap().to_owned();
    let (rehearsal, _) = Visitor::default().follow(daemon, "/console/rehearse?topic=orders&status=parked").await;
    vec![
        ("now", "/".into()),
        ("failures", "/console/failures".into()),
        ("failure", format!("/console/failures/{fingerprint}")),
        ("messages", "/console/messages?status=parked".into()),
        ("message", format!("/console/messages/{id}")),
        ("key", "/console/keys?topic=orders&key=k9&group=mailer".into()),
        ("rehearsal", rehearsal),
        ("redrives", "/console/redrives".into()),
        ("redrive", format!("/console/redrives/{job}")),
        ("flow", "/console/flow".into()),
        ("alerts", "/console/alerts".into()),
        ("alert", format!("/console/alerts/{alert}")),
        ("audit", "/console/audit".into()),
        ("access", "/console/access".into()),
        ("keyboard", "/console/help".into()),
    ]
}

#[tokio::test]
async fn every_page_is_accessible() {
    let sandbox = Sandbox::new();
    let (receiver, _healthy) = receiver().await;
    sandbox.configure(&receiver.subscription(""));
    let daemon = sandbox.serve().await;
    let Some(browser) = Browser::start(&daemon).await else { return };
    let mut pages = full_pages(&daemon).await;
    pages.push(("nothing", "/console/nothing".into()));
    pages.push(("no match", "/console/messages?topic=none".into()));
    let mut found = Vec::new();
    for (name, path) in &pages {
        for (width, height) in [(320, 640), (1280, 900)] {
            for theme in ["light", "dark"] {
                browser.look(width, height, theme).await;
                browser.open(path).await;
                found.extend(check(&browser, &format!("{name} at {width} px, {theme}")).await);
                let overflow = browser.eval("document.documentElement.scrollWidth - window.innerWidth").await;
                if overflow.as_i64().unwrap() > 0 {
                    found.push(format!("{name} at {width} px scrolls sideways by {overflow}"));
                }
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    // The checker notices a planted fault.
    browser.eval("document.querySelector('main').append(document.createElement('img'))").await;
    assert!(!check(&browser, "planted").await.is_empty());
    browser.eval(SMALL_BUTTONS).await;
    assert!(check(&browser, "small").await.iter().any(|found| found.contains("target-size")));
}

#[tokio::test]
async fn sign_in_is_accessible() {
    let sandbox = Sandbox::new();
    sandbox.configure(&tokens());
    let daemon = sandbox.serve().await;
    let Some(browser) = Browser::start(&daemon).await else { return };
    for (width, theme) in [(320, "light"), (320, "dark"), (1280, "light"), (1280, "dark")] {
        browser.look(width, 800, theme).await;
        browser.open("/console/sign-in").await;
        assert_eq!(check(&browser, theme).await, Vec::<String>::new());
    }
}

async fn check(browser: &Browser, about: &str) -> Vec<String> {
    // WebDriver runs scripts beside the policy of the page.
    browser.eval(&format!("(() => {{ {AXE}; return true; }})()")).await;
    let found = browser.eval_later(RUN).await;
    let found: Vec<Value> = serde_json::from_value(found.clone()).unwrap_or_else(|_| vec![found]);
    found.into_iter().map(|violation| format!("{about}: {violation}")).collect()
}
