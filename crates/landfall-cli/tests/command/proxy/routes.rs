//! Which requests are forwarded, and the configuration that says so.

use super::super::support::{Sandbox, request};
use super::fixture::{Pay, Shop, refused, serve};

#[tokio::test]
async fn only_requests_of_a_route_are_forwarded() {
    let (sandbox, shop) = (Sandbox::new(), Shop::start().await);
    let more = format!(
        "[[idempotent_route]]\nmatch = \"/open/{{*rest}}\"\nupstream = \"http://{}\"\nbusiness_type = \"other\"\n\
         key = \"optional\"\nscope = \"global\"\non_unknown = \"rerun\"\n",
        shop.address
    );
    let daemon = serve(&sandbox, &(shop.route("") + &more)).await;
    for target in ["/", "/orders/7", "/orders/7/pay/", "/orders//pay", "/healthz", "/v1/messages", "//orders/7/pay"] {
        refused(&Pay { target, ..Pay::default() }.to(daemon.proxy()).await, 404, "not-found");
    }
    refused(&request(daemon.proxy(), "PUT", "/orders/7/pay", &[], b"").await, 404, "not-found");
    for target in ["/open/../orders", "/open/%2e%2E/x", "/open/a/..%2f..%2fadmin", "/orders/../pay"] {
        refused(&Pay { target, ..Pay::default() }.to(daemon.proxy()).await, 400, "invalid-request");
    }
    assert_eq!(shop.effects(), 0);
    for (number, method) in ["GET", "HEAD", "PUT", "DELETE", "PATCH"].into_iter().enumerate() {
        let answer = request(daemon.proxy(), method, "/open/a/b?c", &[], b"").await;
        assert_eq!((answer.status, shop.effects()), (201, number + 1), "{method}: {answer:?}");
    }
    assert_eq!(shop.seen()[0].target, "/open/a/b?c");
    // The same key of two business types is two keys.
    assert_eq!(Pay::default().to(daemon.proxy()).await.status, 201);
    assert_eq!(Pay { target: "/open/pay", ..Pay::default() }.to(daemon.proxy()).await.status, 201);
    assert_eq!(shop.effects(), 7);
}

#[tokio::test]
async fn proxy_is_off_without_a_route_and_refuses_wrong_ones() {
    let sandbox = Sandbox::new();
    let daemon = sandbox.serve_as("push").await;
    assert!(!daemon.stderr().contains("proxy on"), "{}", daemon.stderr());
    daemon.kill().await;
    for (line, expected) in [
        ("scop = \"global\"", "idempotent_route[0] has the unknown key \"scop\"; did you mean \"scope\"?"),
        ("scope = \"everyone\"", "idempotent_route[0].scope must be authorization, header:NAME"),
        ("upstream = \"orders:8080\"", "idempotent_route[0].upstream must begin with https:// or http://"),
    ] {
        let least = "match = \"POST /a\"\nbusiness_type = \"a\"\non_unknown = \"rerun\"\n";
        let upstream = if line.starts_with("upstream") { "" } else { "upstream = \"http://orders\"\n" };
        sandbox.configure(&format!("[[idempotent_route]]\n{least}{upstream}{line}\n"));
        let refusal = sandbox.run(&["serve", "--listen", "127.0.0.1:0"]).await;
        assert!(refusal.error_line(2).contains(expected), "{refusal:?}");
    }
}
