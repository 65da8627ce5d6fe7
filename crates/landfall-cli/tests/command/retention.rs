//! How long things are kept: a configuration that cannot hold is refused, and what had its time goes.

use landfall_testkit::eventually;
use nix::sys::signal::Signal;
use serde_json::Value;

use super::support::{PATIENCE, Place};

async fn sent(place: &Place) -> Vec<Value> {
    place.run(&["outbox", "list", "--state", "sent", "--json"]).await.objects()
}

#[tokio::test]
async fn a_window_that_is_too_short_is_refused_with_the_arithmetic() {
    let place = Place::new();
    place.configure("[retention]\ninbox = \"7d\"\n[broker]\nretention = \"36h\"\n");
    let refused = place.run(&["serve", "--listen", "127.0.0.1:0"]).await;
    assert_eq!(refused.code, 2, "{refused:?}");
    for line in [
        "landfall: retention.inbox and broker.retention are too short",
        "relay.max_attempts, relay.backoff_first_ms, relay.backoff_cap_ms",
        "30d  retention.dead_letters",
        "1d  retention.redrive",
        "= needed                31d 1m 33s 700ms",
        "too short by 24d 1m 33s 700ms: make it 31d 1m 33s 700ms or longer",
    ] {
        assert!(refused.stderr.contains(line), "{line:?} is missing in\n{}", refused.stderr);
    }
    assert!(!place.data().exists(), "nothing was opened or written");

    // What the refusal names would do.
    place.configure("[retention]\ninbox = \"31d 1m 33s 700ms\"\n[broker]\nretention = \"forever\"\n");
    drop(place.serve().await);
}

#[tokio::test]
async fn sent_messages_are_kept_as_long_as_they_are_to_be() {
    let place = Place::new();
    place.configure("[retention]\nsent = \"forever\"\n");
    let daemon = place.serve().await;
    daemon.send(r#"{"topic":"orders","key":"k","payload":1}"#).await;
    eventually(PATIENCE, "it is sent and kept", async || sent(&place).await.len() == 1).await;
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.ended().await, Some(0));

    place.configure("[retention]\nsent = \"0\"\n");
    let daemon = place.serve().await;
    eventually(PATIENCE, "it had its time", async || sent(&place).await.is_empty()).await;
    eventually(PATIENCE, "the removal is counted", async || {
        daemon.get("/metrics").await.body.contains("landfall_housekeeping_removed_total{what=\"sent\"} 1")
    })
    .await;
}

#[tokio::test]
async fn a_letter_that_waited_too_long_is_redriven_only_on_request() {
    let place = Place::new();
    let daemon = place.serve().await;
    place
        .sql(r#"INSERT INTO landfall_outbox (topic, headers, payload) VALUES ('orders', '{"a":"x\ny"}', x'31')"#)
        .await;
    let parked = async || place.run(&["dlq", "list", "--status", "parked", "--json"]).await.objects();
    eventually(PATIENCE, "the dead letter", async || parked().await.len() == 1).await;
    place.sql("UPDATE landfall_dead_letter SET headers = '{}', first_seen = first_seen - 40 * 86400000").await;

    let refused = place.run(&["dlq", "redrive", "--all"]).await;
    assert_eq!((refused.code, refused.stdout.as_str()), (1, ""), "{refused:?}");
    for text in ["retention.dead_letters is 30d", "40d", "nothing was redriven", "--older-than-retention", "= needed"] {
        assert!(refused.stderr.contains(text), "{text:?} is missing in\n{}", refused.stderr);
    }
    assert_eq!(parked().await.len(), 1);
    let done = place.run(&["dlq", "redrive", "--all", "--older-than-retention", "--json"]).await.objects();
    assert_eq!(done[0]["redriven"].as_array().unwrap().len(), 1);
    eventually(PATIENCE, "it is published", async || {
        daemon.get("/metrics").await.body.contains("landfall_published_total 1")
    })
    .await;
}

#[tokio::test]
async fn a_topic_that_forgets_too_early_is_named_and_served() {
    let place = Place::new();
    assert_eq!(place.run(&["topic", "create", "orders", "--retention", "1h"]).await.code, 0);
    assert_eq!(place.run(&["topic", "create", "payments"]).await.code, 0);
    let daemon = place.serve().await;
    eventually(PATIENCE, "the warning", async || daemon.stderr().contains("topic orders is too short")).await;
    assert!(daemon.stderr().contains("a topic remembers ids for too short a time"), "{}", daemon.stderr());
}
