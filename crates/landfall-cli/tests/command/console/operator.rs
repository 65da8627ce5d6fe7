//! What a person on call does, in a real browser.

use std::sync::atomic::Ordering;

use landfall_testkit::eventually;
use serde_json::json;

use super::super::redrives::{count, park, receipt, receiver};
use super::super::support::{Daemon, Receiver, Sandbox, TIMEOUT, response};
use super::browser::Browser;
use super::visitor::{token, tokens};

const ENTER: &str = "\u{E007}";

/// Forty parked keys, and a receiver that still refuses.
async fn troubled() -> (Sandbox, Receiver, std::sync::Arc<std::sync::atomic::AtomicBool>, Daemon) {
    let sandbox = Sandbox::new();
    let (receiver, healthy) = receiver().await;
    sandbox.configure(&receiver.subscription(""));
    let daemon = sandbox.serve().await;
    park(&daemon, 40).await;
    (sandbox, receiver, healthy, daemon)
}

async fn quiet(browser: &Browser) {
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

/// Find a failure, rehearse, redrive and watch it finish, without a mouse and without a reload.
#[tokio::test]
async fn failure_is_redriven_with_the_keyboard() {
    let (_sandbox, _receiver, healthy, daemon) = troubled().await;
    let Some(browser) = Browser::start(&daemon).await else { return };
    browser.open("/").await;
    browser.keys("gf").await;
    browser.wait_for("/console/failures").await;
    browser.keys("j").await;
    browser.keys(ENTER).await;
    browser.wait_for("/console/messages?fingerprint=").await;
    assert_eq!(browser.eval("document.querySelectorAll('[data-row]').length").await, 40);
    // Three rows are selected: the first, and two below it.
    browser.keys("jxjxjx").await;
    assert_eq!(browser.eval("document.querySelectorAll(':checked[data-select]').length").await, 3);
    browser.keys("r").await;
    browser.wait_for("/console/rehearse?ids=").await;
    assert_eq!(browser.eval("document.querySelector('[data-count=ready]').textContent").await, "3");
    let rehearsal = browser.path().await;
    browser.open("/console/flow").await;
    browser.back().await;
    browser.wait_for("/console/rehearse?ids=").await;
    assert_eq!(browser.path().await, rehearsal, "the selection is lost");
    healthy.store(true, Ordering::SeqCst);
    browser.keys("/").await;
    browser.eval("document.querySelector('input[name=reason]').focus()").await;
    browser.keys("the mailer is back").await;
    browser.keys(ENTER).await;
    browser.wait_for("/console/redrives/").await;
    browser.eval("window.sameDocument = true").await;
    browser.wait("the end", "document.querySelector('h1 .badge').textContent === 'finished'").await;
    assert_eq!(browser.eval("window.sameDocument").await, true, "the page was reloaded");
    let shown = browser.eval("document.querySelector('[data-count=succeeded]').textContent").await;
    assert_eq!(shown, "3");
    let id = browser.path().await.rsplit('/').next().unwrap().to_owned();
    assert_eq!(receipt(&daemon, &json!(id)).await["succeeded"], 3);
    assert_eq!(count(&daemon, "status=parked").await, 37);
    quiet(&browser).await;
}

/// Stop in the middle of the ramp: nothing is dispatched afterwards, and the rest stays parked.
#[tokio::test]
async fn redrive_is_stopped_in_mid_ramp() {
    let (_sandbox, _receiver, healthy, daemon) = troubled().await;
    healthy.store(true, Ordering::SeqCst);
    let Some(browser) = Browser::start(&daemon).await else { return };
    browser.open("/console/rehearse?topic=orders&status=parked").await;
    browser.eval("document.querySelector('input[name=rate]').value = '4'").await;
    browser.eval("document.querySelector('input[name=reason]').value = 'slowly'").await;
    browser.eval("document.querySelector('.decide').requestSubmit()").await;
    browser.wait_for("/console/redrives/").await;
    let id = json!(browser.path().await.rsplit('/').next().unwrap());
    let succeeded = "Number(document.querySelector('[data-count=succeeded]').textContent)";
    browser.wait("progress on the page", &format!("{succeeded} > 0")).await;
    browser.eval("document.querySelector('button[value=stop]').click()").await;
    browser.wait("the stop", "document.querySelector('h1 .badge')?.textContent === 'stopped'").await;
    eventually(TIMEOUT, "letters in flight", async || count(&daemon, "status=redriving").await == 0).await;
    // What was in flight is settled after the stop, and no other letter is handed back.
    let parked = count(&daemon, "status=parked").await;
    eventually(TIMEOUT, "the outcomes", async || receipt(&daemon, &id).await["remaining"] == parked).await;
    let stopped = receipt(&daemon, &id).await;
    assert!(parked > 0 && stopped["succeeded"].as_u64().unwrap() > 0, "{stopped}");
    let remaining = "document.querySelector('[data-count=remaining]').textContent";
    browser.wait("the receipt", &format!("{remaining} === '{parked}'")).await;
    quiet(&browser).await;
}

/// A page of another site cannot act, not even with the cookie of a person who is signed in.
#[tokio::test]
async fn other_site_cannot_act_in_the_browser() {
    let sandbox = Sandbox::new();
    let (receiver, _healthy) = receiver().await;
    sandbox.configure(&format!("{}{}", receiver.subscription(""), tokens()));
    let daemon = sandbox.serve().await;
    let Some(browser) = Browser::start(&daemon).await else { return };
    browser.open("/console/flow?lang=en").await;
    browser.wait_for("/console/sign-in").await;
    browser.eval(&format!("document.querySelector('input[name=token]').value = '{}'", token("admin"))).await;
    browser.eval("document.querySelector('main form').requestSubmit()").await;
    browser.wait_for("/console/flow").await;
    quiet(&browser).await;
    // Another port of the same host is the same site for cookies, which is the worst case.
    let target = format!("http://{}/console/redrives", daemon.address);
    let link = format!("<a href='http://localhost:{}/console/messages?topic=orders'>", daemon.address.port());
    let form = format!("<form method=post action={target}><input name=selection value='status=parked'></form>");
    let page = format!("{form}{link}");
    let evil = Receiver::start(move |_, _| response(200, "content-type: text/html\r\n", &page)).await;
    browser.open_url(&format!("http://{}/", evil.address)).await;
    browser.eval("document.forms[0].submit()").await;
    browser.wait("the refusal", "document.body.textContent.includes('another site sent this')").await;
    assert_eq!(sandbox.count("SELECT count(*) FROM landfall_redrive").await, 0);
    // A link of another site leads to the exact page, after a sign-in there.
    browser.open_url(&format!("http://{}/", evil.address)).await;
    browser.eval("document.links[0].click()").await;
    browser.wait_for("/console/sign-in?next=%2Fconsole%2Fmessages%3Ftopic%3Dorders").await;
    browser.eval(&format!("document.querySelector('input[name=token]').value = '{}'", token("viewer"))).await;
    browser.eval("document.querySelector('main form').requestSubmit()").await;
    browser.wait_for("/console/messages?topic=orders").await;
    browser.open_url(&format!("http://{}/", evil.address)).await;
    browser.eval("document.links[0].click()").await;
    browser.wait_for("/console/messages?topic=orders").await;
    // Its scripts can neither read pages nor listen to events.
    browser.open_url(&format!("http://{}/", evil.address)).await;
    let read = format!("fetch('http://{}/', {{credentials: 'include'}})", daemon.address);
    let read = format!("{read}.then(() => 'read', () => 'refused').then(arguments[0])");
    assert_eq!(browser.eval_later(&read).await, "refused");
}

/// A lost stream shows how old the page is.
#[tokio::test]
async fn lost_stream_is_announced() {
    let sandbox = Sandbox::new();
    let daemon = sandbox.serve().await;
    let Some(browser) = Browser::start(&daemon).await else { return };
    browser.open("/").await;
    assert_eq!(browser.eval("document.querySelector('.stale').hidden").await, true);
    daemon.send(r#"{"topic":"orders","payload":1}"#).await;
    let figures = "[...document.querySelectorAll('.figure')].map(figure => figure.textContent)";
    let published = format!("{figures}.find(text => text.includes('published'))");
    browser.wait("the figure", &format!("{published}.startsWith('1')")).await;
    quiet(&browser).await;
    daemon.kill().await;
    browser.wait("the notice", "!document.querySelector('.stale').hidden").await;
    let notice = browser.eval("document.querySelector('.stale').textContent").await;
    assert!(notice.as_str().unwrap().starts_with("Live updates are lost. This page is "), "{notice}");
}

/// Hostile text runs nothing, and the policy has nothing to refuse.
#[tokio::test]
async fn hostile_text_runs_nothing_in_the_browser() {
    let sandbox = Sandbox::new();
    let (receiver, _healthy) = receiver().await;
    sandbox.configure(&receiver.subscription(""));
    let daemon = sandbox.serve().await;
    let texts = [
        "<img src=x onerror=document.title='owned'>",
        "\"><script>document.title='owned'</script>",
        "<svg onload=document.title='owned'>",
    ];
    for text in texts {
        let body = json!({"topic": "orders", "key": text, "kind": text, "headers": {"x": text}, "payload": text});
        daemon.send(&body.to_string()).await;
    }
    eventually(TIMEOUT, "the letters", async || count(&daemon, "status=parked").await == 3).await;
    sandbox.sql("UPDATE landfall_dead_letter SET error = key").await;
    let Some(browser) = Browser::start(&daemon).await else { return };
    let pages = ["/", "/console/failures", "/console/messages", "/console/audit"].map(str::to_owned);
    for path in pages.into_iter().chain((1..=3).map(|id| format!("/console/messages/{id}"))) {
        browser.open(&path).await;
        let title = browser.eval("document.title").await;
        assert!(title.as_str().unwrap().ends_with("· Landfall"), "{path}: {title}");
    }
    quiet(&browser).await;
}
