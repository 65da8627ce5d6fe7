//! Permission is asked before every run and every replay, and can name the scope.

use super::super::support::{Receiver, Sandbox, request, response};
use super::fixture::{ANN, BOB, Pay, Shop, refused, replayed, serve};

#[tokio::test]
async fn revoked_caller_gets_no_replay() {
    let (sandbox, shop) = (Sandbox::new(), Shop::start().await);
    // The first two questions are granted. Then Ann is revoked.
    let guard = Receiver::start(|number, _| match number {
        0 | 1 => response(204, "", ""),
        2 => response(403, "Content-Type: text/plain\r\nSet-Cookie: a=1\r\n", "revoked"),
        3 => response(401, "WWW-Authenticate: Basic\r\n", ""),
        4 => response(500, "", "broken"),
        _ => Some(Vec::new()),
    })
    .await;
    let authorize = format!("authorize = \"http://{}/may?x=1\"\n", guard.address);
    let daemon = serve(&sandbox, &shop.route(&authorize)).await;
    let first = Pay::default().to(daemon.proxy()).await;
    assert_eq!(first.status, 201);
    replayed(&Pay::default().to(daemon.proxy()).await, &first);
    let forbidden = Pay::default().to(daemon.proxy()).await;
    assert_eq!((forbidden.status, forbidden.body.as_str()), (403, "revoked"));
    assert_eq!((forbidden.header("content-type"), forbidden.header("set-cookie")), (Some("text/plain"), None));
    let unauthorized = Pay::default().to(daemon.proxy()).await;
    assert_eq!((unauthorized.status, unauthorized.header("www-authenticate")), (401, Some("Basic")));
    // A guard that is broken or gone grants nothing.
    for _ in 0..2 {
        refused(&Pay::default().to(daemon.proxy()).await, 503, "unavailable");
    }
    assert_eq!(shop.effects(), 1);
    let question = guard.requests().remove(0);
    assert_eq!(question.header("request-line"), "GET /may?x=1 HTTP/1.1");
    assert_eq!(question.header("authorization"), ANN);
    assert_eq!((question.header("x-original-method"), question.header("x-original-uri")), ("POST", "/orders/7/pay"));
    assert!(!question.headers.contains_key("idempotency-key") && question.body.is_empty(), "{question:?}");
}

/// A token that was renewed is the same principal.
#[tokio::test]
async fn scope_can_come_from_the_permission() {
    let (sandbox, shop) = (Sandbox::new(), Shop::start().await);
    let guard = Receiver::start(|_, question| {
        let account = if question.header("authorization") == BOB { "bob" } else { "ann" };
        response(200, &format!("X-Account: {account}\r\n"), "")
    })
    .await;
    let lines = format!("authorize = \"http://{}/\"\nscope = \"authorized:X-Account\"\n", guard.address);
    let daemon = serve(&sandbox, &shop.route(&lines)).await;
    let first = Pay::default().to(daemon.proxy()).await;
    replayed(&Pay { caller: Some("Bearer renewed"), ..Pay::default() }.to(daemon.proxy()).await, &first);
    assert_eq!(shop.effects(), 1);
    assert_eq!(Pay { caller: Some(BOB), ..Pay::default() }.to(daemon.proxy()).await.status, 201);
    // The header of a request does not count.
    let forged = [("idempotency-key", "k1"), ("authorization", BOB), ("x-account", "ann")];
    let answer = request(daemon.proxy(), "POST", "/orders/7/pay", &forged, b"{\"euro\":10}").await;
    assert_ne!(answer.body, first.body);
    let rows = sandbox.run(&["idempotency", "list", "--json"]).await.objects();
    let mut scopes: Vec<&str> = rows.iter().map(|row| row["scope"].as_str().unwrap()).collect();
    scopes.sort_unstable();
    assert_eq!(scopes, ["ann", "bob"]);
}
