//! The order of published messages: `relay.order` and `relay.when_exhausted`.

use landfall_testkit::eventually;

use super::support::{Sandbox, TIMEOUT};

#[tokio::test]
async fn skip_publishes_successors_of_a_parked_message() {
    let sandbox = Sandbox::new();
    sandbox.configure("[relay]\nwhen_exhausted = \"skip\"\n");
    let daemon = sandbox.serve().await;
    let insert =
        r#"INSERT INTO landfall_outbox (topic, key, headers, payload) VALUES ('orders', 'k', '{"a":"x\ny"}', x'31')"#;
    sandbox.sql(insert).await;
    daemon.send(r#"{"topic":"orders","key":"k","payload":2}"#).await;
    eventually(TIMEOUT, "its successor is published", async || {
        daemon.get("/metrics").await.body.contains("landfall_published_total 1")
    })
    .await;
    let stats = sandbox.run(&["outbox", "stats", "--json"]).await.objects();
    assert_eq!((stats[0]["parked"].as_u64(), stats[0]["pending"].as_u64()), (Some(1), Some(0)));
}

async fn published_without_order(sandbox: &Sandbox) {
    sandbox.configure("[relay]\norder = \"none\"\n");
    let daemon = sandbox.serve().await;
    for n in 1..=20 {
        daemon.send(&format!(r#"{{"topic":"orders","key":"k","payload":{n}}}"#)).await;
    }
    let published = async || sandbox.run(&["outbox", "stats", "--json"]).await.objects()[0]["published"].as_u64();
    eventually(TIMEOUT, "all are published", async || published().await == Some(20)).await;
    let lines = sandbox.run(&["topic", "tail", "orders", "--json"]).await.objects();
    let mut numbers: Vec<_> = lines.iter().map(|line| line["payload"].as_u64().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=20).collect::<Vec<_>>(), "each once, in any order");
}

#[tokio::test]
async fn unordered_relay_publishes_everything_on_postgres() {
    if let Some(sandbox) = Sandbox::on_postgres().await {
        published_without_order(&sandbox).await;
    }
}

#[tokio::test]
async fn unordered_relay_publishes_everything_on_mysql() {
    if let Some(sandbox) = Sandbox::on_mysql().await {
        published_without_order(&sandbox).await;
    }
}

#[tokio::test]
async fn unordered_relay_is_refused_on_sqlite() {
    let sandbox = Sandbox::new();
    sandbox.configure("[relay]\norder = \"none\"\n");
    let refused = sandbox.run(&["serve", "--listen", "127.0.0.1:0"]).await;
    assert!(refused.error_line(2).contains("order = \"key\""), "{refused:?}");
    sandbox.configure("[relay]\norder = \"any\"\n");
    let refused = sandbox.run(&["serve"]).await;
    assert!(refused.error_line(2).contains("relay.order must be key or none"), "{refused:?}");
}
