//! Senders that retry `POST /v1/messages`.

use landfall_testkit::eventually;
use serde_json::json;

use super::support::{Daemon, Response, Sandbox, TIMEOUT, on_each, request};

async fn post_as(daemon: &Daemon, key: &str, body: &str) -> Response {
    request(daemon.address, "POST", "/v1/messages", &[("idempotency-key", key)], body.as_bytes()).await
}

fn accepted(response: &Response) -> String {
    assert_eq!(response.status, 202, "{response:?}");
    response.json()["id"].as_str().unwrap().to_owned()
}

/// The number of messages that were published, once nothing is pending.
async fn published(sandbox: &Sandbox) -> u64 {
    let mut published = 0;
    eventually(TIMEOUT, "the settled outbox", async || {
        let stats = sandbox.run(&["outbox", "stats", "--json"]).await.objects().remove(0);
        published = stats["published"].as_u64().unwrap();
        stats["pending"] == json!(0)
    })
    .await;
    published
}

on_each! {
    async fn retried_post_is_the_same_message(sandbox: &Sandbox) {
        let daemon = sandbox.serve().await;
        let body = r#"{"topic":"orders","key":"k","headers":{"a":"1","b":"2"},"payload":{"n":1}}"#;
        let id = accepted(&post_as(&daemon, "order-7", body).await);
        assert_eq!(published(sandbox).await, 1);
        // After it was published; the same fields in another order; the id in the body.
        assert_eq!(accepted(&post_as(&daemon, "order-7", body).await), id);
        let reordered = r#"{"payload":{"n":1},"headers":{"b":"2","a":"1"},"key":"k","topic":"orders","id":"order-7"}"#;
        assert_eq!(daemon.send(reordered).await, id);

        daemon.kill().await;
        let daemon = sandbox.serve().await;
        assert_eq!(accepted(&post_as(&daemon, "order-7", body).await), id);
        let other = post_as(&daemon, "order-7", r#"{"topic":"orders","key":"k","payload":{"n":2}}"#).await;
        assert!(other.problem(422).contains(&id), "{other:?}");
        assert_eq!(other.json()["type"], json!("urn:landfall:problem:different-message"));
        // The marker follows in the same key, so nothing else can be pending before it.
        let marker = daemon.send(r#"{"topic":"orders","key":"k","payload":"end"}"#).await;
        let tail = async || sandbox.run(&["topic", "tail", "orders", "--json"]).await.objects();
        eventually(TIMEOUT, "the marker", async || tail().await.iter().any(|line| line["id"] == json!(marker))).await;
        let ids: Vec<_> = tail().await.iter().map(|line| line["id"].clone()).collect();
        assert_eq!(ids, [json!(id), json!(marker)]);
        assert_eq!(published(sandbox).await, 2, "a retry was enqueued again");
    }

    async fn concurrent_posts_under_one_id_enqueue_once(sandbox: &Sandbox) {
        let daemon = sandbox.serve_as("push").await;
        let id = "0190d2a7-6a4e-7bbb-8a6d-3c1f0a9b1c2d";
        let body = format!(r#"{{"id":"{id}","topic":"orders","payload":1}}"#);
        let posts = (0..8).map(|_| daemon.post("/v1/messages", &body));
        for response in futures_util::future::join_all(posts).await {
            assert_eq!(accepted(&response), id);
        }
        assert_eq!(sandbox.count("SELECT count(*) FROM landfall_outbox").await, 1);
    }
}

#[tokio::test]
async fn different_ids_in_body_and_header_are_refused() {
    let sandbox = Sandbox::new();
    let daemon = sandbox.serve().await;
    let response = post_as(&daemon, "b", r#"{"id":"a","topic":"orders","payload":1}"#).await;
    assert!(response.problem(422).contains("differ"), "{response:?}");
    assert_eq!(sandbox.count("SELECT count(*) FROM landfall_enqueued_id").await, 0);
    assert_eq!(accepted(&post_as(&daemon, "a", r#"{"id":"a","topic":"orders","payload":1}"#).await).len(), 36);
}
