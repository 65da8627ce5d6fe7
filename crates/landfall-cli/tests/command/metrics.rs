//! The metrics of the outbox and the dead letters.

use landfall_testkit::eventually;

use super::outbox::one_of_each;
use super::support::{Daemon, Sandbox, TIMEOUT};

async fn value(daemon: &Daemon, name: &str) -> Option<f64> {
    let body = daemon.get("/metrics").await.body;
    let line = body.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map(|value| value.parse().unwrap())
}

#[tokio::test]
async fn every_outbox_state_has_a_metric() {
    let sandbox = Sandbox::new();
    one_of_each(&sandbox).await;
    // Makes the only dead letter an hour old.
    sandbox.sql("UPDATE landfall_dead_letter SET first_seen = first_seen - 3600000").await;
    let daemon = sandbox.serve().await;
    // Two messages stay pending: they wait behind the failed ones.
    eventually(TIMEOUT, "pending messages are published", async || {
        value(&daemon, "landfall_outbox_pending").await == Some(2.0)
    })
    .await;
    for (name, expected) in [
        ("landfall_published_total", 1.0),
        ("landfall_outbox_retrying", 1.0),
        ("landfall_outbox_parked", 1.0),
        (r#"landfall_dlq_size{topic="orders",group=""}"#, 1.0),
        (r#"landfall_dlq_top_error_code{code="TOO_LARGE"}"#, 1.0),
        ("landfall_dlq_in_total", 0.0),
        ("landfall_delivery_seconds_count", 1.0),
        ("landfall_database_up", 1.0),
    ] {
        // The metrics of one step do not change at the same instant.
        eventually(TIMEOUT, name, async || value(&daemon, name).await == Some(expected)).await;
    }
    assert!(value(&daemon, "landfall_outbox_oldest_seconds").await.is_some_and(|age| age > 0.0));
    let age = value(&daemon, "landfall_dlq_message_age_p95_seconds").await;
    assert!(age.is_some_and(|age| (3600.0..3700.0).contains(&age)), "{age:?}");

    // A header with a line break cannot be published.
    sandbox
        .sql(r#"INSERT INTO landfall_outbox (topic, headers, payload) VALUES ('orders', '{"a":"x\ny"}', x'31')"#)
        .await;
    eventually(TIMEOUT, "it is parked", async || value(&daemon, "landfall_outbox_parked").await == Some(2.0)).await;
    assert_eq!(value(&daemon, "landfall_dlq_in_total").await, Some(1.0));
    let size = r#"landfall_dlq_size{topic="orders",group=""}"#;
    assert_eq!(value(&daemon, size).await, Some(2.0));
    sandbox.sql("UPDATE landfall_dead_letter SET status = 'delayed', retry_at = 9999999999999 WHERE id = 1").await;
    assert_eq!(value(&daemon, "landfall_delayed").await, Some(1.0));
    assert_eq!(value(&daemon, size).await, Some(1.0));
    let documented = include_str!("../../../../docs/reference/metrics.md");
    let body = daemon.get("/metrics").await.body;
    let names = body.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    for name in names.filter(|name| name.starts_with("landfall_")) {
        assert!(documented.contains(&format!("`{name}")), "{name} is not documented");
    }
}
