//! Who may do what, where tokens are configured.

use super::support::{Answer, Daemon, Place, request};

const VIEWER: &str = "viewer-0123456789";
const OPERATOR: &str = "operator-0123456789";
const BODY: &[u8] = br#"{"topic":"o","payload":1}"#;

async fn guarded() -> (Place, Daemon) {
    let place = Place::new();
    place.configure(&format!(
        "[auth]\ntokens = [{{ role = \"viewer\", token = \"file:viewer\" }}, {{ role = \"operator\", token = \"{OPERATOR}\" }}]\n"
    ));
    std::fs::write(place.path().join("viewer"), format!("{VIEWER}\n")).unwrap();
    let daemon = place.serve().await;
    (place, daemon)
}

async fn ask(daemon: &Daemon, method: &str, path: &str, token: &str, body: &[u8]) -> Answer {
    let authorization = format!("Bearer {token}");
    request(daemon.address, method, path, &[("authorization", &authorization)], body).await
}

#[tokio::test]
async fn every_request_needs_a_token_of_the_right_role() {
    let (place, daemon) = guarded().await;
    for path in ["/metrics", "/v1/messages", "/v1/anything", "/anything"] {
        let answer = daemon.get(path).await;
        answer.problem(401);
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
    }
    daemon.post("/v1/messages", BODY).await.problem(401);
    ask(&daemon, "POST", "/v1/messages", "wrong-0123456789", BODY).await.problem(401);
    let refusal = ask(&daemon, "POST", "/v1/messages", VIEWER, BODY).await.problem(403);
    assert_eq!(refusal, "this needs the role operator, and the token has the role viewer");
    assert_eq!(place.count("SELECT count(*) FROM landfall_outbox").await, 0);

    assert_eq!(ask(&daemon, "GET", "/metrics", VIEWER, b"").await.status, 200);
    assert_eq!(ask(&daemon, "GET", "/metrics", OPERATOR, b"").await.status, 200);
    assert_eq!(ask(&daemon, "POST", "/v1/messages", OPERATOR, BODY).await.status, 202);
}

#[tokio::test]
async fn what_tells_nothing_is_open() {
    let (_place, daemon) = guarded().await;
    for path in ["/", "/healthz", "/openapi.json"] {
        assert_eq!(daemon.get(path).await.status, 200, "{path}");
    }
    let stderr = daemon.stderr();
    assert!(!stderr.contains(VIEWER) && !stderr.contains(OPERATOR), "{stderr}");
}
