//! What a scrape sees of the outbox and the dead letters.

use landfall_testkit::eventually;

use super::outbox::one_of_each;
use super::support::{Daemon, PATIENCE, Place};

async fn value(daemon: &Daemon, name: &str) -> Option<f64> {
    let body = daemon.get("/metrics").await.body;
    let line = body.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map(|value| value.parse().unwrap())
}

#[tokio::test]
async fn every_state_of_the_outbox_is_measured() {
    let place = Place::new();
    one_of_each(&place).await;
    // Parked for an hour: the one dead letter there is.
    place.sql("UPDATE landfall_dead_letter SET first_seen = first_seen - 3600000").await;
    let daemon = place.serve().await;
    // But for the two that wait behind the others.
    eventually(PATIENCE, "what is pending is published", async || {
        value(&daemon, "landfall_outbox_pending").await == Some(2.0)
    })
    .await;
    for (name, expected) in [
        ("landfall_published_total", 1.0),
        ("landfall_outbox_retrying", 1.0),
        ("landfall_outbox_parked", 1.0),
        ("landfall_dlq_size", 1.0),
        ("landfall_dlq_in_total", 0.0),
        ("landfall_delivery_seconds_count", 1.0),
        ("landfall_database_up", 1.0),
    ] {
        // The figures of one step are not shown at one moment.
        eventually(PATIENCE, name, async || value(&daemon, name).await == Some(expected)).await;
    }
    assert!(value(&daemon, "landfall_outbox_oldest_seconds").await.is_some_and(|age| age > 0.0));
    let age = value(&daemon, "landfall_dlq_message_age_p95_seconds").await;
    assert!(age.is_some_and(|age| (3600.0..3700.0).contains(&age)), "{age:?}");

    // A foreign writer stored a header with a line break.
    place
        .sql(r#"INSERT INTO landfall_outbox (topic, headers, payload) VALUES ('orders', '{"a":"x\ny"}', x'31')"#)
        .await;
    eventually(PATIENCE, "it is parked", async || value(&daemon, "landfall_outbox_parked").await == Some(2.0)).await;
    assert_eq!(value(&daemon, "landfall_dlq_in_total").await, Some(1.0));
    assert_eq!(value(&daemon, "landfall_dlq_size").await, Some(2.0));
    let documented = include_str!("../../../../docs/reference/metrics.md");
    let body = daemon.get("/metrics").await.body;
    let names = body.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    for name in names.filter(|name| name.starts_with("landfall_")) {
        assert!(documented.contains(&format!("`{name}")), "{name} is not documented");
    }
}
