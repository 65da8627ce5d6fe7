//! What operators see while a push receiver is down: the command, HTTP, SQL and a metric.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use landfall_testkit::eventually;
use serde_json::{Value, json};

use super::support::{Daemon, Receiver, Sandbox, TIMEOUT, on_each, response};

async fn retrying(sandbox: &Sandbox) -> Vec<Value> {
    sandbox.run(&["dlq", "retrying", "--json"]).await.objects()
}

async fn has_metric(daemon: &Daemon, line: &str) -> bool {
    daemon.get("/metrics").await.body.lines().any(|shown| shown == line)
}

on_each! {
    async fn failing_delivery_is_visible_until_it_succeeds(sandbox: &Sandbox) {
        let is_repaired = Arc::new(AtomicBool::new(false));
        let repaired = is_repaired.clone();
        let receiver = Receiver::start(move |_, _| match repaired.load(Ordering::SeqCst) {
            true => response(204, "", ""),
            false => response(500, "", "out of order"),
        })
        .await;
        sandbox.configure(&receiver.subscription("max_attempts = 100"));
        let daemon = sandbox.serve().await;
        assert!(retrying(sandbox).await.is_empty());
        let id = daemon.send(r#"{"topic":"orders","key":"k","payload":1}"#).await;
        eventually(TIMEOUT, "a second failure", async || {
            retrying(sandbox).await.first().is_some_and(|delivery| delivery["attempts"].as_u64() > Some(1))
        })
        .await;

        let delivery = retrying(sandbox).await.remove(0);
        assert_eq!((&delivery["message_id"], &delivery["topic"]), (&json!(id), &json!("orders")));
        assert_eq!((&delivery["group"], &delivery["key"]), (&json!("mailer"), &json!("k")));
        let error = format!("POST http://{}/in: the answer was HTTP 500: out of order", receiver.address);
        assert_eq!(delivery["error"], json!(error));
        let log = daemon.stderr();
        let line = log.lines().find(|line| line.contains("handler failed, retrying")).unwrap();
        for text in [&id, "topic=orders", "key=\"k\"", "group=mailer", &error, " WARN "] {
            assert!(line.contains(text), "{text} is missing in {line}");
        }
        assert_eq!(log.matches("shards leased").count(), 1, "one line for all shards: {log}");
        assert!(delivery["next_attempt"].as_str() > delivery["first_failed"].as_str(), "{delivery}");
        let listed = daemon.get("/v1/deliveries?topic=orders&group=mailer&key=k").await.json();
        assert_eq!(listed["items"][0]["message_id"], json!(id), "{listed}");
        assert_eq!(daemon.get("/v1/deliveries?topic=payments").await.json(), json!({"items": []}));
        assert_eq!(sandbox.count("SELECT count(*) FROM landfall_delivery_status WHERE topic = 'orders'").await, 1);
        let gauge = r#"landfall_deliveries_retrying{topic="orders",group="mailer"}"#;
        assert!(has_metric(&daemon, &format!("{gauge} 1")).await);
        let people = sandbox.run(&["dlq", "retrying"]).await.stdout;
        assert!(people.contains(&id) && people.contains("HTTP 500"), "{people}");

        is_repaired.store(true, Ordering::SeqCst);
        eventually(TIMEOUT, "an empty list", async || retrying(sandbox).await.is_empty()).await;
        assert!(has_metric(&daemon, &format!("{gauge} 0")).await);
        eventually(TIMEOUT, "the record to be removed", async || {
            sandbox.count("SELECT count(*) FROM landfall_delivery").await == 0
        })
        .await;
    }
}

#[tokio::test]
async fn invalid_delivery_filter_is_refused() {
    let sandbox = Sandbox::new();
    let daemon = sandbox.serve().await;
    for query in ["limit=0", "limit=1001", "limit=x", "topic=a%20b", "message_id=7", "grupe=x", "topic=a&topic=b"] {
        daemon.get(&format!("/v1/deliveries?{query}")).await.problem(400);
    }
}
