//! Forms of other sites, and forms without the token of the session.

use landfall_testkit::eventually;

use super::super::redrives::receiver;
use super::super::support::{Sandbox, TIMEOUT, request};
use super::access::ROUTES;
use super::visitor::{Visitor, encode, hidden_fields, token, tokens};

/// What another site can make a browser send: its own origin, with the cookie in the worst case.
const FOREIGN: [(&str, &str); 8] = [
    ("origin", "https://evil.example"),
    ("origin", "http://127.0.0.1:1"),
    ("origin", "null"),
    ("origin", ""),
    ("origin", "file://"),
    ("origin", "http://localhost.evil.example"),
    ("sec-fetch-site", "cross-site"),
    ("sec-fetch-site", ""),
];

/// Each form with each wrong token, and each form of another site with the right one.
#[tokio::test]
async fn forged_forms_change_nothing() {
    let sandbox = Sandbox::new();
    let (receiver, _healthy) = receiver().await;
    sandbox.configure(&format!("{}{}", receiver.subscription(""), tokens()));
    let daemon = sandbox.serve().await;
    let authorization = format!("Bearer {}", token("operator"));
    let headers = [("authorization", authorization.as_str())];
    let body = br#"{"topic":"orders","key":"k","payload":{"n":1}}"#;
    assert_eq!(request(daemon.address, "POST", "/v1/messages", &headers, body).await.status, 202);
    let (admin, other) = (Visitor::of(&daemon, "admin").await, Visitor::of(&daemon, "admin").await);
    eventually(TIMEOUT, "the letter", async || admin.page(&daemon, "/console/messages").await.contains("#1<")).await;

    let form_token = |page: &str| hidden_fields(page, "/console/sign-out").remove(0).1;
    let (own, foreign) = (form_token(&admin.page(&daemon, "/").await), form_token(&other.page(&daemon, "/").await));
    assert_ne!(own, foreign, "sessions share the token of their forms");
    let wrong: [Option<String>; 8] = [
        None,
        Some(String::new()),
        Some(foreign),
        Some(own[1..].to_owned()),
        Some(own.to_uppercase()),
        Some(format!("{own}0")),
        Some(format!(" {own}")),
        Some("0".repeat(own.len())),
    ];
    let seen = hidden_fields(&admin.page(&daemon, "/console/messages/1").await, "/console/messages/1/redrive");
    let fields: Vec<(&str, &str)> = seen
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .filter(|(name, _)| *name != "form_token")
        .chain([("reason", "forged"), ("payload", "{}"), ("selection", "topic=orders&to=2090-01-01T00:00:00Z")])
        .chain([("expected", "1"), ("given", "0197b1c2-8f3e-7c11-9d2b-6a5f0c3e9d10"), ("control", "stop")])
        .collect();
    let mut refused = 0;
    let posts = ROUTES.iter().filter(|(method, path, _)| *method == "POST" && *path != "/console/sign-in");
    for (_, path, _) in posts {
        let url = path.replace("{id}", "1").replace("{fingerprint}", "1-0123456789abcdef");
        for forged in &wrong {
            let mut all = fields.clone();
            all.extend(forged.as_deref().map(|token| ("form_token", token)));
            let response = admin.send(&daemon, "POST", &url, &[], encode(&all).as_bytes()).await;
            assert_eq!(response.status, 403, "{url} with {forged:?}: {response:?}");
            refused += 1;
        }
        for header in FOREIGN {
            let all = [fields.as_slice(), &[("form_token", own.as_str())]].concat();
            let response = admin.send(&daemon, "POST", &url, &[header], encode(&all).as_bytes()).await;
            assert_eq!(response.status, 403, "{url} with {header:?}: {response:?}");
            refused += 1;
        }
        // In the query the token would end up in logs.
        let response = admin.send(&daemon, "POST", &format!("{url}?form_token={own}"), &[], b"").await;
        assert_eq!(response.status, 403, "{url}: {response:?}");
    }
    assert!(refused >= 50, "only {refused}");
    for header in FOREIGN {
        let body = encode(&[("token", &token("admin"))]);
        let response = Visitor::default().send(&daemon, "POST", "/console/sign-in", &[header], body.as_bytes()).await;
        assert_eq!(response.status, 403, "sign-in with {header:?}");
    }
    let changed = "SELECT count(*) FROM landfall_audit WHERE actor = 'maria'";
    assert_eq!(sandbox.count(changed).await, 0);
    assert_eq!(sandbox.count("SELECT count(*) FROM landfall_dead_letter WHERE status = 'parked'").await, 1);
    // The same form with the right token works, so the refusals were not for another reason.
    let action = "/console/messages/1/ignore";
    let done = admin.submit(&daemon, "/console/messages/1", action, &[("reason", "real")]).await;
    assert_eq!(done.status, 303, "{done:?}");
    assert_eq!(sandbox.count(changed).await, 1);
}
