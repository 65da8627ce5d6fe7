//! Authorization of requests if tokens are configured.

use super::support::{Daemon, Response, Sandbox, request};

const VIEWER: &str = "viewer-0123456789";
const OPERATOR: &str = "operator-0123456789";
const BODY: &[u8] = br#"{"topic":"o","payload":1}"#;

async fn guarded() -> (Sandbox, Daemon) {
    let sandbox = Sandbox::new();
    sandbox.configure(&format!(
        "[auth]\ntokens = [{{ role = \"viewer\", token = \"file:viewer\" }}, \
         {{ role = \"operator\", token = \"{OPERATOR}\" }}]\n"
    ));
    std::fs::write(sandbox.path().join("viewer"), format!("{VIEWER}\n")).unwrap();
    let daemon = sandbox.serve().await;
    (sandbox, daemon)
}

async fn ask(daemon: &Daemon, method: &str, path: &str, token: &str, body: &[u8]) -> Response {
    let authorization = format!("Bearer {token}");
    request(daemon.address, method, path, &[("authorization", &authorization)], body).await
}

#[tokio::test]
async fn requests_need_a_token_with_the_right_role() {
    let (sandbox, daemon) = guarded().await;
    for path in ["/metrics", "/v1/messages", "/v1/anything", "/anything"] {
        let response = daemon.get(path).await;
        response.problem(401);
        assert_eq!(response.header("www-authenticate"), Some("Bearer"));
    }
    daemon.post("/v1/messages", BODY).await.problem(401);
    ask(&daemon, "POST", "/v1/messages", "wrong-0123456789", BODY).await.problem(401);
    let refusal = ask(&daemon, "POST", "/v1/messages", VIEWER, BODY).await.problem(403);
    assert_eq!(refusal, "this request needs the role operator, and the token has the role viewer");
    assert_eq!(sandbox.count("SELECT count(*) FROM landfall_outbox").await, 0);

    assert_eq!(ask(&daemon, "GET", "/metrics", VIEWER, b"").await.status, 200);
    assert_eq!(ask(&daemon, "GET", "/metrics", OPERATOR, b"").await.status, 200);
    assert_eq!(ask(&daemon, "POST", "/v1/messages", OPERATOR, BODY).await.status, 202);
}

#[tokio::test]
async fn open_routes_need_no_token() {
    let (_sandbox, daemon) = guarded().await;
    for path in ["/", "/healthz", "/openapi.json"] {
        assert_eq!(daemon.get(path).await.status, 200, "{path}");
    }
    let stderr = daemon.stderr();
    assert!(!stderr.contains(VIEWER) && !stderr.contains(OPERATOR), "{stderr}");
}
