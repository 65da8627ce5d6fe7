//! Every page, on every database.

use std::sync::atomic::Ordering;

use landfall_testkit::eventually;
use serde_json::json;

use super::super::redrives::{count, park, receiver};
use super::super::support::{Daemon, Sandbox, TIMEOUT, on_each};
use super::visitor::{Visitor, unescape};

pub(super) const PAGES: [&str; 11] = [
    "/",
    "/console/failures",
    "/console/messages",
    "/console/keys",
    "/console/redrives",
    "/console/flow",
    "/console/alerts",
    "/console/audit",
    "/console/access",
    "/console/help",
    "/console/sign-in",
];

/// Returns the link to the JSON twin, and the command.
fn footer(page: &str) -> (Option<String>, Option<String>) {
    let between = |start: &str, end: &str| Some(unescape(page.split_once(start)?.1.split_once(end)?.0));
    let twin = between("As JSON</span> <a href=\"", "\"");
    (twin, between("<code class=\"command\" data-copy=\"Copy\">", "</code>"))
}

async fn first_letter(daemon: &Daemon, query: &str) -> String {
    daemon.get(&format!("/v1/dead-letters?limit=1&{query}")).await.json()["items"][0]["id"].to_string()
}

on_each! {
    /// Each page shows what the database contains, its twin answers, and its command runs.
    async fn pages_show_what_is_stored(sandbox: &Sandbox) {
        let (receiver, _healthy) = receiver().await;
        sandbox.configure(&receiver.subscription(""));
        let daemon = sandbox.serve().await;
        let visitor = Visitor::default();
        let empty = visitor.page(&daemon, "/").await;
        assert!(empty.contains("All is well: nothing needs a decision."), "{empty}");
        assert!(empty.contains("This daemon has no tokens"), "{empty}");
        assert!(visitor.page(&daemon, "/console/messages").await.contains("No message has failed yet."));

        park(&daemon, 3).await;
        let now = visitor.page(&daemon, "/").await;
        assert!(now.contains("3 messages are parked and need a decision; 6 wait behind them."), "{now}");
        assert!(now.contains("UPSTREAM_4XX"), "{now}");
        let failures = visitor.page(&daemon, "/console/failures").await;
        assert!(failures.contains("<td class=\"number\">3</td>"), "{failures}");
        let messages = visitor.page(&daemon, "/console/messages?status=parked").await;
        assert_eq!(messages.matches("data-select").count(), 3);
        let other = visitor.page(&daemon, "/console/messages?topic=other").await;
        assert!(other.contains("No message matches the filter."), "{other}");

        let id = first_letter(&daemon, "status=parked").await;
        let message = visitor.page(&daemon, &format!("/console/messages/{id}")).await;
        for part in ["&quot;n&quot;: 0", "<strong>2</strong> messages of its key", "park", "In the inbox of"] {
            assert!(message.contains(part), "{part}: {message}");
        }
        let key = visitor.page(&daemon, "/console/keys?topic=orders&key=k0&group=mailer").await;
        assert_eq!(key.matches("data-open").count(), 3, "{key}");
        let flow = visitor.page(&daemon, "/console/flow").await;
        assert!(flow.contains("<dt>live relays</dt><dd>1</dd>"), "{flow}");
        let audit = visitor.page(&daemon, "/console/audit").await;
        assert!(audit.contains("consumer:mailer"), "{audit}");

        for path in PAGES.iter().map(|path| (*path).to_owned()).chain([format!("/console/messages/{id}")]) {
            if path == "/console/sign-in" { continue; }
            let (twin, command) = footer(&visitor.page(&daemon, &path).await);
            if let Some(twin) = twin {
                assert_eq!(daemon.get(&twin).await.status, 200, "{path}: {twin}");
            }
            for command in command.iter().flat_map(|command| command.split("; ")) {
                if let Some(arguments) = command.strip_prefix("landfall ") {
                    let run = sandbox.run(&arguments.split(' ').collect::<Vec<_>>()).await;
                    assert_eq!(run.code, 0, "{path}: {command}: {run:?}");
                }
            }
        }
    }

    /// A letter that is resolved leaves the open list, which says so.
    async fn resolved_messages_leave_an_empty_page(sandbox: &Sandbox) {
        let (receiver, healthy) = receiver().await;
        sandbox.configure(&receiver.subscription(""));
        let daemon = sandbox.serve().await;
        park(&daemon, 1).await;
        healthy.store(true, Ordering::SeqCst);
        let id = first_letter(&daemon, "status=parked").await;
        let visitor = Visitor::default();
        let path = format!("/console/messages/{id}");
        let done = visitor.submit(&daemon, &path, &format!("{path}/redrive"), &[]).await;
        assert_eq!((done.status, done.header("location")), (303, Some(path.as_str())), "{done:?}");
        eventually(TIMEOUT, "the key", async || count(&daemon, "status=open").await == 0).await;
        let page = visitor.page(&daemon, "/console/messages").await;
        assert!(page.contains("All resolved: no message is open."), "{page}");
    }
}

/// Payloads are shown exactly: big numbers, binary, invalid UTF-8, empty, and large ones within a bound.
#[tokio::test]
async fn payloads_are_shown_exactly() {
    let sandbox = Sandbox::new();
    let (receiver, _healthy) = receiver().await;
    sandbox.configure(&receiver.subscription(""));
    let daemon = sandbox.serve().await;
    let large = "x".repeat(900 * 1024);
    let bodies = [
        r#"{"topic":"orders","payload":{"id": 9223372036854775807, "sum": 1.10}}"#.to_owned(),
        json!({"topic": "orders", "payload_base64": "/wAQ"}).to_string(),
        json!({"topic": "orders", "payload_base64": ""}).to_string(),
        json!({"topic": "orders", "payload": large}).to_string(),
    ];
    for (number, body) in (1_u64..).zip(&bodies) {
        daemon.send(body).await;
        eventually(TIMEOUT, "the letter", async || count(&daemon, "status=parked").await == number).await;
    }
    let items = daemon.get("/v1/dead-letters").await.json()["items"].clone();
    let page = async |index: usize, query: &str| {
        Visitor::default().page(&daemon, &format!("/console/messages/{}{query}", items[index]["id"])).await
    };
    let number = page(0, "").await;
    assert!(number.contains("&quot;id&quot;: 9223372036854775807") && number.contains("1.10"), "{number}");
    assert!(page(1, "").await.contains("ff 00 10"));
    assert!(page(2, "").await.contains("The payload is empty (0 bytes)."));
    let bounded = page(3, "").await;
    assert!(bounded.len() < 120_000, "the page has {} bytes", bounded.len());
    assert!(bounded.contains("The first 65536 of 921602 bytes."));
    let file = Visitor::default().get(&daemon, &format!("/console/messages/{}/payload", items[3]["id"])).await;
    assert_eq!((file.status, file.body.len()), (200, large.len() + 2));
    assert!(file.header("content-disposition").unwrap().starts_with("attachment"));
}

/// Pages speak the language that the browser asks for, and keep the one that a person chose.
#[tokio::test]
async fn pages_exist_in_english_and_chinese() {
    let sandbox = Sandbox::new();
    let daemon = sandbox.serve().await;
    let visitor = Visitor::default();
    for path in PAGES {
        let chinese = visitor.send(&daemon, "GET", path, &[("accept-language", "zh-CN,zh;q=0.9")], b"").await;
        let english = visitor.send(&daemon, "GET", path, &[("accept-language", "en")], b"").await;
        if path == "/console/sign-in" {
            assert_eq!((chinese.status, english.status), (303, 303), "nothing to sign in to");
            continue;
        }
        assert!(chinese.body.contains("lang=\"zh-CN\"") && chinese.body.contains("审计"), "{path}");
        let han = |text: &str| text.chars().filter(|c| ('\u{4e00}'..='\u{9fff}').contains(c)).count();
        // Only the switch to the other language.
        assert_eq!(han(&english.body), 2, "{path}: {}", english.body);
    }
    let switched = visitor.get(&daemon, "/console/flow?lang=zh").await;
    let cookie = switched.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    assert!(switched.body.contains("流转"));
    let kept = Visitor { cookie: Some(cookie) }.page(&daemon, "/console/flow").await;
    assert!(kept.contains("流转"), "{kept}");
}

/// Without the role the front page is plain, and nothing of the console exists.
#[tokio::test]
async fn console_is_a_role() {
    let sandbox = Sandbox::new();
    let daemon = sandbox.serve_as("relay").await;
    assert!(daemon.get("/").await.body.contains("Every message lands"));
    for path in &PAGES[1..] {
        assert_eq!(daemon.get(path).await.status, 404, "{path}");
    }
    daemon.kill().await;
    let daemon = sandbox.serve_as("console").await;
    assert!(daemon.stderr().contains("roles console)"), "{}", daemon.stderr());
    assert!(daemon.get("/").await.body.contains("All is well"));
}
