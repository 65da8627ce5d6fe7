//! Every route with every role, and the routes against their OpenAPI document.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use landfall_testkit::servers::services_folder;
use landfall_testkit::{current_test, eventually, not_run};
use tokio::process::Command;

use super::support::{Daemon, Sandbox, TIMEOUT, request};

const ROLES: [&str; 4] = ["viewer", "payload-reader", "operator", "admin"];

/// Each route, and the lowest role that may use it; `None` needs no token. A new route gets its row here.
const ROUTES: [(&str, &str, Option<&str>); 40] = [
    ("GET", "/", None),
    ("GET", "/healthz", None),
    ("GET", "/metrics", Some("viewer")),
    ("GET", "/openapi.json", None),
    ("POST", "/ops/dlq/redrive", Some("operator")),
    ("GET", "/readyz", None),
    ("GET", "/v1/alert-notices", Some("viewer")),
    ("GET", "/v1/alerts", Some("viewer")),
    ("POST", "/v1/alerts/{id}/mute", Some("operator")),
    ("GET", "/v1/audit", Some("viewer")),
    ("GET", "/v1/dead-letter-groups", Some("viewer")),
    ("POST", "/v1/dead-letter-groups/{fingerprint}", Some("operator")),
    ("GET", "/v1/dead-letters", Some("viewer")),
    ("GET", "/v1/dead-letters/{id}", Some("viewer")),
    ("POST", "/v1/dead-letters/{id}/ignore", Some("operator")),
    ("POST", "/v1/dead-letters/{id}/redrive", Some("operator")),
    ("POST", "/v1/dead-letters/{id}/rehearse", Some("operator")),
    ("POST", "/v1/dead-letters/{id}/release", Some("operator")),
    ("GET", "/v1/deliveries", Some("viewer")),
    ("GET", "/v1/half-messages", Some("viewer")),
    ("POST", "/v1/half-messages", Some("operator")),
    ("GET", "/v1/half-messages/{id}", Some("viewer")),
    ("POST", "/v1/half-messages/{id}/commit", Some("operator")),
    ("POST", "/v1/half-messages/{id}/rollback", Some("operator")),
    ("POST", "/v1/idempotency/claim", Some("operator")),
    ("POST", "/v1/idempotency/complete", Some("operator")),
    ("POST", "/v1/idempotency/release", Some("operator")),
    ("POST", "/v1/idempotency/renew", Some("operator")),
    ("GET", "/v1/key-rules", Some("viewer")),
    ("POST", "/v1/key-rules", Some("operator")),
    ("POST", "/v1/messages", Some("operator")),
    ("POST", "/v1/tokens", Some("operator")),
    ("POST", "/v1/tokens/consume", Some("operator")),
    ("GET", "/v1/redrives", Some("viewer")),
    ("POST", "/v1/redrives", Some("operator")),
    ("GET", "/v1/redrives/{id}", Some("viewer")),
    ("GET", "/v1/redrives/{id}/items", Some("viewer")),
    ("POST", "/v1/redrives/{id}/pause", Some("operator")),
    ("POST", "/v1/redrives/{id}/resume", Some("operator")),
    ("POST", "/v1/redrives/{id}/stop", Some("operator")),
];

const METHODS: [&str; 8] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"];

fn token(role: &str) -> String {
    format!("{role}-0123456789")
}

async fn serve_with_all_roles(sandbox: &Sandbox) -> Daemon {
    let tokens: Vec<_> =
        ROLES.iter().map(|role| format!("{{ role = \"{role}\", token = \"{}\" }}", token(role))).collect();
    sandbox.configure(&format!("[auth]\ntokens = [{}]\n", tokens.join(", ")));
    sandbox.serve().await
}

/// What a client sends as its credentials, and the role that it thereby has.
fn credentials() -> Vec<(Option<String>, Option<&'static str>)> {
    let mut credentials: Vec<(Option<String>, Option<&str>)> = vec![(None, None)];
    let wrong = ["Bearer wrong-0123456789", "Bearer ", "Bearer", "", "Basic YWRtaW46YWRtaW4=", "admin-0123456789"];
    credentials.extend(wrong.map(|text| (Some(text.to_owned()), None)));
    credentials.push((Some(format!("Bearer {}x", token("admin"))), None));
    credentials.push((Some(format!("Bearer {}, Bearer {}", token("viewer"), token("admin"))), None));
    credentials.extend(ROLES.map(|role| (Some(format!("Bearer {}", token(role))), Some(role))));
    credentials
}

fn rank(role: &str) -> usize {
    ROLES.iter().position(|known| *known == role).unwrap()
}

/// The documented operations: method and path.
async fn documented(daemon: &Daemon) -> Vec<(String, String)> {
    let document = daemon.get("/openapi.json").await.json();
    let paths: BTreeMap<String, BTreeMap<String, serde_json::Value>> =
        serde_json::from_value(document["paths"].clone()).unwrap();
    let operations = paths.into_iter().flat_map(|(path, methods)| {
        methods.into_keys().map(move |method| (method.to_uppercase(), path.clone())).collect::<Vec<_>>()
    });
    operations.collect()
}

#[tokio::test]
async fn every_route_requires_its_role() {
    let sandbox = Sandbox::new();
    let daemon = serve_with_all_roles(&sandbox).await;
    // A unit test compares the document with the router, so that this covers every route.
    let mut expected: Vec<_> = ROUTES.iter().map(|(method, path, _)| ((*method).into(), (*path).into())).collect();
    expected.sort_by(|(_, a): &(String, String), (_, b)| a.cmp(b));
    assert_eq!(documented(&daemon).await, expected, "each route needs a row in ROUTES");
    // Ready means that a relay works on the shards, which takes a moment on a busy machine.
    eventually(TIMEOUT, "the daemon is ready", async || daemon.get("/readyz").await.status == 200).await;

    for (method, path, needed) in ROUTES {
        for (header, role) in credentials() {
            let headers: Vec<_> = header.iter().map(|value| ("authorization", value.as_str())).collect();
            // A control character, so that this decides nothing.
            let url = path.replace("{id}", "%07");
            let response = request(daemon.address, method, &url, &headers, b"{").await;
            let status = match (needed, role) {
                (Some(_), None) => 401,
                (Some(needed), Some(role)) if rank(role) < rank(needed) => 403,
                // The body is not a message, or the id is invalid.
                _ if method == "POST" || path.contains("{id}") => 400,
                _ => 200,
            };
            assert_eq!(response.status, status, "{method} {path} with {header:?}");
        }
    }
    assert_eq!(sandbox.count("SELECT count(*) FROM landfall_outbox").await, 0);
}

#[tokio::test]
async fn undocumented_methods_and_paths_do_nothing() {
    let sandbox = Sandbox::new();
    let daemon = serve_with_all_roles(&sandbox).await;
    let admin = format!("Bearer {}", token("admin"));
    for (method, path, _) in ROUTES {
        let is_documented = |other: &str| ROUTES.iter().any(|route| (route.0, route.1) == (other, path));
        let is_allowed = |other: &str| is_documented(other) || (other == "HEAD" && is_documented("GET"));
        for other in METHODS.into_iter().filter(|other| !is_allowed(other)) {
            let url = path.replace("{id}", "x");
            let response = request(daemon.address, other, &url, &[("authorization", &admin)], b"").await;
            assert_eq!(response.status, 405, "{other} {path}");
            assert!(response.header("allow").is_some_and(|allow| allow.contains(method)), "{other} {path}");
        }
    }
    for path in ["/v1", "/v1/", "/v1/messages/", "/metrics/", "/METRICS", "/v1/messages/1", "/.env", "/v2/messages"] {
        let closed = request(daemon.address, "GET", path, &[], b"").await;
        assert_eq!(closed.status, 401, "{path}: an unknown route is closed by default");
        let response = request(daemon.address, "GET", path, &[("authorization", &admin)], b"").await;
        assert_eq!(response.status, 404, "{path}");
    }
}

/// Schemathesis sends valid and invalid requests to every operation of the document. It fails on a 5xx status, a
/// response that is not documented, a refused valid request and an accepted invalid one.
#[tokio::test]
async fn daemon_behaves_as_its_openapi_document_says() {
    let python = services_folder().join("schemathesis/bin/python");
    if !python.exists() {
        return not_run(&current_test(), "Schemathesis is not installed; run scripts/services");
    }
    let sandbox = Sandbox::new();
    let daemon = serve_with_all_roles(&sandbox).await;
    // A schema cannot say that an id is used once, or is the same in two places.
    let lenient = |name: &str, statuses: &str| {
        format!(
            "[[operations]]\ninclude-name = \"{name}\"\n[operations.checks]\n\
             positive_data_acceptance.expected-statuses = [\"2xx\", {statuses}]\n"
        )
    };
    let settings = [
        lenient("POST /v1/messages", "\"422\""),
        lenient("POST /v1/half-messages", "\"422\""),
        lenient("GET /v1/half-messages/{id}", "\"404\""),
        lenient("POST /v1/half-messages/{id}/commit", "\"409\""),
        lenient("POST /v1/half-messages/{id}/rollback", "\"409\""),
        lenient("POST /v1/idempotency/claim", "\"409\", \"422\""),
        lenient("POST /v1/idempotency/complete", "\"409\""),
        lenient("POST /v1/idempotency/release", "\"409\""),
        lenient("POST /v1/idempotency/renew", "\"409\""),
        lenient("POST /v1/tokens/consume", "\"409\""),
        lenient("POST /ops/dlq/redrive", "\"400\", \"422\""),
        lenient("POST /v1/alerts/{id}/mute", "\"404\""),
        lenient("POST /v1/dead-letter-groups/{fingerprint}", "\"404\""),
        lenient("GET /v1/dead-letters/{id}", "\"404\""),
        lenient("POST /v1/dead-letters/{id}/ignore", "\"404\""),
        lenient("POST /v1/dead-letters/{id}/redrive", "\"404\""),
        lenient("POST /v1/dead-letters/{id}/rehearse", "\"404\""),
        lenient("POST /v1/dead-letters/{id}/release", "\"404\""),
        lenient("POST /v1/redrives", "\"422\""),
        lenient("GET /v1/redrives/{id}", "\"404\""),
        lenient("GET /v1/redrives/{id}/items", "\"404\""),
        lenient("POST /v1/redrives/{id}/pause", "\"404\", \"409\""),
        lenient("POST /v1/redrives/{id}/resume", "\"404\", \"409\""),
        lenient("POST /v1/redrives/{id}/stop", "\"404\", \"409\""),
    ]
    .concat();
    std::fs::write(sandbox.path().join("schemathesis.toml"), settings).unwrap();
    let mut command = Command::new(python);
    command.args(["-m", "schemathesis.cli", "run", &format!("http://{}/openapi.json", daemon.address)]);
    command.args(["--header", &format!("Authorization: Bearer {}", token("admin")), "--checks", "all", "--no-color"]);
    // A fixed seed repeats a failure; a fixed number of requests bounds the time.
    command.args(["--seed", "1", "--max-examples", "200", "--generation-database", "none"]);
    // Without links there are no sequences of requests; it would guess some.
    command.args(["--phases", "examples,coverage,fuzzing"]);
    command.current_dir(sandbox.path()).stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(Duration::from_secs(300), command.output()).await;
    let output = output.expect("Schemathesis exits in time").unwrap();
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{report}\n{}", String::from_utf8_lossy(&output.stderr));
    // It leaves out the document's own route.
    assert!(report.contains(&format!("Operations:       {0} selected / {0} total", ROUTES.len() - 1)), "{report}");
    assert_eq!(daemon.get("/readyz").await.status, 200);
    assert!(!daemon.stderr().contains("panicked"), "{}", daemon.stderr());
}
