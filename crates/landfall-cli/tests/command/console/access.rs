//! Every route with every role, sessions, and what viewers do not see.

use std::time::Duration;

use landfall_testkit::eventually;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::super::redrives::receiver;
use super::super::support::{Daemon, Response, Sandbox, TIMEOUT, request};
use super::visitor::{ROLES, Visitor, encode, token, tokens};

/// Each route, and the lowest role that may use it; `None` needs no session. A new route gets its row here.
pub(super) const ROUTES: [(&str, &str, Option<&str>); 32] = [
    ("GET", "/", None),
    ("GET", "/console", Some("viewer")),
    ("GET", "/console/access", Some("viewer")),
    ("GET", "/console/alerts", Some("viewer")),
    ("GET", "/console/alerts/{id}", Some("viewer")),
    ("POST", "/console/alerts/{id}/mute", Some("operator")),
    ("GET", "/console/assets/{version}/{name}", None),
    ("GET", "/console/audit", Some("viewer")),
    ("GET", "/console/events", Some("viewer")),
    ("GET", "/console/failures", Some("viewer")),
    ("GET", "/console/failures/{fingerprint}", Some("viewer")),
    ("POST", "/console/failures/{fingerprint}/decide", Some("operator")),
    ("GET", "/console/flow", Some("viewer")),
    ("GET", "/console/keys", Some("viewer")),
    ("POST", "/console/keys/rule", Some("operator")),
    ("GET", "/console/messages", Some("viewer")),
    ("GET", "/console/messages/{id}", Some("viewer")),
    ("POST", "/console/messages/{id}/discard", Some("operator")),
    ("POST", "/console/messages/{id}/edit", Some("operator")),
    ("POST", "/console/messages/{id}/ignore", Some("operator")),
    ("GET", "/console/messages/{id}/payload", Some("payload-reader")),
    ("POST", "/console/messages/{id}/redrive", Some("operator")),
    ("POST", "/console/messages/{id}/release", Some("operator")),
    ("GET", "/console/redrives", Some("viewer")),
    ("POST", "/console/redrives", Some("operator")),
    ("GET", "/console/redrives/{id}", Some("viewer")),
    ("POST", "/console/redrives/{id}/control", Some("operator")),
    ("GET", "/console/rehearse", Some("operator")),
    ("GET", "/console/sign-in", None),
    ("POST", "/console/sign-in", None),
    ("POST", "/console/sign-out", Some("viewer")),
    ("GET", "/console/help", Some("viewer")),
];

fn rank(role: &str) -> usize {
    ROLES.iter().position(|known| *known == role).unwrap()
}

/// The paths in the router's table.
fn routed() -> Vec<&'static str> {
    let source = include_str!("../../../src/http/console/mod.rs");
    let table = source.split_once("fn routes()").unwrap().1.split_once("fn router()").unwrap().0;
    let rows = table.lines().filter_map(|line| line.trim().strip_prefix("(\""));
    rows.map(|row| row.split_once('"').unwrap().0).collect()
}

async fn serve(sandbox: &Sandbox, lines: &str) -> Daemon {
    sandbox.configure(&format!("{lines}{}", tokens()));
    sandbox.serve().await
}

/// Reads the head of a response that does not end.
async fn head(daemon: &Daemon, path: &str, cookie: Option<&str>) -> String {
    let mut stream = TcpStream::connect(daemon.address).await.unwrap();
    let cookie = cookie.map(|cookie| format!("cookie: {cookie}\r\n")).unwrap_or_default();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n{cookie}\r\n", daemon.address);
    stream.write_all(request.as_bytes()).await.unwrap();
    let (mut buffer, mut text) = ([0; 1024], String::new());
    let read = async {
        while !text.contains("event: ready") && !text.contains("urn:landfall") {
            let length = stream.read(&mut buffer).await.unwrap();
            if length == 0 {
                break;
            }
            text.push_str(&String::from_utf8_lossy(&buffer[..length]));
        }
    };
    tokio::time::timeout(TIMEOUT, read).await.unwrap();
    text
}

#[tokio::test]
async fn every_console_route_requires_its_role() {
    for path in routed() {
        assert!(ROUTES.iter().any(|(_, known, _)| *known == path), "{path} needs a row in ROUTES");
    }
    let sandbox = Sandbox::new();
    let daemon = serve(&sandbox, "").await;
    let mut visitors = vec![(None, Visitor::default())];
    for role in ROLES {
        visitors.push((Some(role), Visitor::of(&daemon, role).await));
    }
    for (method, path, needed) in ROUTES {
        for (role, visitor) in &visitors {
            let (needed, role) = (needed.map(rank), role.map(rank));
            let is_allowed = needed.is_none_or(|needed| role.is_some_and(|role| role >= needed));
            if path == "/console/events" {
                let text = head(&daemon, path, visitor.cookie.as_deref()).await;
                assert!(text.starts_with(if is_allowed { "HTTP/1.1 200" } else { "HTTP/1.1 401" }), "{text}");
                continue;
            }
            let url = path
                .replace("{id}", "x")
                .replace("{fingerprint}", "x")
                .replace("{version}", "0")
                .replace("{name}", "x");
            let response = if method == "POST" && role.is_some() && path != "/console/sign-in" {
                let action = visitor.page(&daemon, "/console/access").await;
                visitor.submit_as(&daemon, &action, &url).await
            } else {
                visitor.send(&daemon, method, &url, &[("accept", "*/*")], b"").await
            };
            let status = match (needed, role) {
                (Some(_), None) => 401,
                _ if !is_allowed => 403,
                _ => response.status,
            };
            assert_eq!(response.status, status, "{method} {path} as {role:?}: {response:?}");
            if is_allowed && needed.is_some() {
                assert!(![401, 403, 500].contains(&response.status), "{method} {path} as {role:?}: {response:?}");
            }
        }
    }
    let closed = Visitor::default().get(&daemon, "/console/anything").await;
    assert_eq!(closed.header("location"), Some("/console/sign-in?next=%2Fconsole%2Fanything"));
    assert_eq!(Visitor::of(&daemon, "viewer").await.get(&daemon, "/console/anything").await.status, 404);
}

impl Visitor {
    /// Posts to `url` with the token of the forms of `page` only.
    async fn submit_as(&self, daemon: &Daemon, page: &str, url: &str) -> Response {
        let fields = super::visitor::hidden_fields(page, "/console/sign-out");
        let fields: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        self.send(daemon, "POST", url, &[("accept", "*/*")], encode(&fields).as_bytes()).await
    }
}

/// The contents of messages appear nowhere for a viewer: pages, searches, files, the other forms of a payload.
#[tokio::test]
async fn viewer_sees_no_payload_in_the_console() {
    let sandbox = Sandbox::new();
    let (receiver, _healthy) = receiver().await;
    let daemon = serve(&sandbox, &receiver.subscription("")).await;
    let authorization = format!("Bearer {}", token("operator"));
    let body = json!({"topic": "orders", "key": "k", "payload": {"card": "visa-4111"}, "headers": {"tenant": "acme"}});
    let headers = [("authorization", authorization.as_str())];
    let sent = request(daemon.address, "POST", "/v1/messages", &headers, body.to_string().as_bytes()).await;
    assert_eq!(sent.status, 202);
    let (viewer, reader) = (Visitor::of(&daemon, "viewer").await, Visitor::of(&daemon, "payload-reader").await);
    eventually(TIMEOUT, "the letter", async || viewer.page(&daemon, "/console/messages").await.contains("#1<")).await;
    let known = reader.page(&daemon, "/console/messages/1").await;
    assert!(known.contains("visa-4111") && known.contains("acme"), "{known}");
    let pages = [
        "/",
        "/console/failures",
        "/console/alerts",
        "/console/messages",
        "/console/messages?q=zz",
        "/console/messages/1",
        "/console/messages/1?as=raw",
        "/console/messages/1?as=hex",
        "/console/keys?topic=orders&key=k",
        "/console/flow",
        "/console/audit",
        "/v1/dead-letters/1",
        "/v1/dead-letters",
    ];
    for path in pages {
        let page = viewer.get(&daemon, path).await;
        assert_eq!(page.status, 200, "{path}");
        assert!(!page.body.contains("visa-4111") && !page.body.contains("acme"), "{path}: {page:?}");
        assert!(!page.body.contains("/redrive\"") && !page.body.contains("/edit\""), "{path} offers an action");
    }
    let found = |page: &str| page.contains("href=\"/console/messages/1\"");
    assert!(!found(&viewer.page(&daemon, "/console/messages?q=visa-4111").await), "a search reveals the payload");
    assert!(found(&reader.page(&daemon, "/console/messages?q=visa-4111").await));
    assert_eq!(viewer.get(&daemon, "/console/messages/1/payload").await.status, 403);
    assert_eq!(viewer.get(&daemon, "/console/rehearse?q=visa-4111").await.status, 403);
    assert!(reader.get(&daemon, "/console/messages/1/payload").await.body.contains("visa-4111"));
}

/// A session reads the API, and never changes anything there: another page of the browser could send its cookie.
#[tokio::test]
async fn session_reads_the_api_and_changes_nothing() {
    let sandbox = Sandbox::new();
    let daemon = serve(&sandbox, "").await;
    let admin = Visitor::of(&daemon, "admin").await;
    assert_eq!(admin.get(&daemon, "/v1/dead-letters").await.status, 200);
    for path in ["/v1/messages", "/v1/redrives", "/v1/dead-letters/1/ignore", "/ops/dlq/redrive?topic=o"] {
        let response = admin.send(&daemon, "POST", path, &[("content-type", "application/json")], b"{}").await;
        assert_eq!(response.status, 401, "{path}: {response:?}");
    }
    let bearer = format!("Bearer {}", token("viewer"));
    let read = request(daemon.address, "GET", "/console/flow", &[("authorization", &bearer)], b"").await;
    assert_eq!(read.status, 200);
}

#[tokio::test]
async fn sign_in_is_limited_and_ends() {
    let sandbox = Sandbox::new();
    let daemon = serve(&sandbox, "").await;
    let stranger = Visitor::default();
    let start = stranger.get(&daemon, "/").await;
    assert!(start.status == 200 && start.body.contains("type=\"password\""), "{start:?}");
    let sent = stranger.get(&daemon, "/console/messages?topic=a%26b&status=all").await;
    assert_eq!(
        (sent.status, sent.header("location")),
        (303, Some("/console/sign-in?next=%2Fconsole%2Fmessages%3Ftopic%3Da%2526b%26status%3Dall"))
    );
    let fields = [("token", &*token("viewer")), ("next", "/console/messages?topic=a%26b&status=all")];
    let done = stranger.send(&daemon, "POST", "/console/sign-in", &[], encode(&fields).as_bytes()).await;
    assert_eq!(done.header("location"), Some("/console/messages?topic=a%26b&status=all"));

    let admin = Visitor::of(&daemon, "admin").await;
    let ended = admin.submit(&daemon, "/", "/console/sign-out", &[]).await;
    assert!(ended.header("set-cookie").unwrap().contains("Max-Age=0"), "{ended:?}");

    let attempt = async |token: &str| {
        stranger.send(&daemon, "POST", "/console/sign-in", &[], encode(&[("token", token)]).as_bytes()).await
    };
    let mut statuses = Vec::new();
    for number in 0..20 {
        let response = attempt(&format!("wrong-{number}-0123456789")).await;
        assert!(response.header("set-cookie").is_none());
        statuses.push(response.status);
    }
    assert!(statuses[..10].iter().all(|status| *status == 401) && statuses.contains(&429), "{statuses:?}");
    assert_eq!(attempt(&token("admin")).await.status, 429, "the right token after too many wrong ones");
    assert_eq!(admin.get(&daemon, "/console/flow").await.status, 200, "sessions are not affected");
    eventually(Duration::from_secs(30), "another attempt", async || attempt(&token("admin")).await.status == 303).await;
    assert!(!daemon.stderr().contains("wrong-0"), "{}", daemon.stderr());
}

/// A link in a chat opens its page, and nothing else of another site passes.
#[tokio::test]
async fn link_of_another_site_is_followed() {
    let sandbox = Sandbox::new();
    let daemon = serve(&sandbox, "").await;
    let admin = Visitor::of(&daemon, "admin").await;
    let link = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
    let path = "/console/messages?topic=a%22b&status=all";
    let page = admin.send(&daemon, "GET", path, &link, b"").await;
    assert_eq!(page.status, 200, "{page:?}");
    assert!(page.body.contains("content=\"0;url=/console/messages?topic=a%22b&amp;status=all\""), "{page:?}");
    assert!(!page.body.contains("form_token"), "{page:?}");
    for (index, other) in [(0, "cross-site"), (1, "cors"), (1, "no-cors"), (2, "iframe"), (2, "empty")] {
        let mut headers = link.to_vec();
        headers[index].1 = other;
        headers.push(("origin", "https://evil.example"));
        assert_eq!(admin.send(&daemon, "GET", path, &headers, b"").await.status, 403, "{other}");
        headers.pop();
        let expected = if index == 0 { 200 } else { 403 };
        assert_eq!(admin.send(&daemon, "GET", path, &headers, b"").await.status, expected, "{other}");
    }
    assert_eq!(admin.send(&daemon, "POST", "/console/sign-out", &link, b"").await.status, 403);
    assert_eq!(admin.send(&daemon, "GET", "/v1/dead-letters", &link, b"").await.status, 403);
}

/// Every response of the console has the headers that protect it.
#[tokio::test]
async fn every_page_is_protected() {
    let sandbox = Sandbox::new();
    let daemon = serve(&sandbox, "").await;
    let admin = Visitor::of(&daemon, "admin").await;
    let page = admin.page(&daemon, "/").await;
    let script = page.split_once("<script src=\"").unwrap().1.split_once('"').unwrap().0.to_owned();
    let paths = ["/", "/console/flow", "/console/nothing", "/console/messages/x", "/console/sign-in", &script];
    for path in paths {
        let response = admin.get(&daemon, path).await;
        let policy = response.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; style-src 'self'; script-src 'self'"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(response.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(response.header("referrer-policy"), Some("same-origin"), "{path}");
        let cached = if path == script { "public, max-age=31536000, immutable" } else { "no-store" };
        assert_eq!(response.header("cache-control"), Some(cached), "{path}");
        for inline in ["<style", " style=", "<script>", "javascript:"] {
            assert!(path == script || !response.body.contains(inline), "{path}: {inline}");
        }
    }
}
