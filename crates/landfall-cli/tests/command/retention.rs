//! Retention: a window that is too short is refused at start-up, and expired rows are removed.

use landfall_testkit::eventually;
use nix::sys::signal::Signal;
use serde_json::Value;

use super::support::{Sandbox, TIMEOUT};

async fn sent(sandbox: &Sandbox) -> Vec<Value> {
    sandbox.run(&["outbox", "list", "--state", "sent", "--json"]).await.objects()
}

#[tokio::test]
async fn short_window_is_refused_with_the_arithmetic() {
    let sandbox = Sandbox::new();
    sandbox.configure("[retention]\ninbox = \"7d\"\n[broker]\nretention = \"36h\"\n");
    let refused = sandbox.run(&["serve", "--listen", "127.0.0.1:0"]).await;
    assert_eq!(refused.code, 2, "{refused:?}");
    for line in [
        "landfall: retention.inbox and broker.retention are too short",
        "relay.max_attempts, relay.backoff_first_ms, relay.backoff_cap_ms",
        "30d  retention.dead_letters",
        "1d  retention.redrive",
        "7d  retention.redelivery",
        "= needed                 38d 1m 33s 700ms",
        "too short by 31d 1m 33s 700ms: make it 38d 1m 33s 700ms or longer",
    ] {
        assert!(refused.stderr.contains(line), "{line:?} is missing in\n{}", refused.stderr);
    }
    assert!(!sandbox.data().exists(), "nothing was opened or written");

    // The value that the error suggests is accepted.
    sandbox.configure("[retention]\ninbox = \"38d 1m 33s 700ms\"\n[broker]\nretention = \"forever\"\n");
    drop(sandbox.serve().await);
}

#[tokio::test]
async fn sent_messages_are_removed_after_their_retention() {
    let sandbox = Sandbox::new();
    sandbox.configure("[retention]\nsent = \"forever\"\n");
    let daemon = sandbox.serve().await;
    daemon.send(r#"{"topic":"orders","key":"k","payload":1}"#).await;
    eventually(TIMEOUT, "it is sent and kept", async || sent(&sandbox).await.len() == 1).await;
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.exit_code().await, Some(0));

    sandbox.configure("[retention]\nsent = \"0\"\n");
    let daemon = sandbox.serve().await;
    eventually(TIMEOUT, "its removal", async || sent(&sandbox).await.is_empty()).await;
    eventually(TIMEOUT, "the removal is counted", async || {
        daemon.get("/metrics").await.body.contains("landfall_housekeeping_removed_total{what=\"sent\"} 1")
    })
    .await;
}

#[tokio::test]
async fn old_dead_letter_needs_an_explicit_redrive() {
    let sandbox = Sandbox::new();
    let daemon = sandbox.serve().await;
    sandbox
        .sql(r#"INSERT INTO landfall_outbox (topic, headers, payload) VALUES ('orders', '{"a":"x\ny"}', x'31')"#)
        .await;
    let parked = async || sandbox.run(&["dlq", "list", "--status", "parked", "--json"]).await.objects();
    eventually(TIMEOUT, "the dead letter", async || parked().await.len() == 1).await;
    sandbox.sql("UPDATE landfall_dead_letter SET headers = '{}', first_seen = first_seen - 40 * 86400000").await;

    let refused = sandbox.run(&["dlq", "redrive", "--all"]).await;
    assert_eq!((refused.code, refused.stdout.as_str()), (1, ""), "{refused:?}");
    for text in ["retention.dead_letters is 30d", "40d", "nothing was redriven", "--older-than-retention", "= needed"] {
        assert!(refused.stderr.contains(text), "{text:?} is missing in\n{}", refused.stderr);
    }
    assert_eq!(parked().await.len(), 1);
    let done = sandbox.run(&["dlq", "redrive", "--all", "--older-than-retention", "--json"]).await.objects();
    assert_eq!(done[0]["redriven"].as_array().unwrap().len(), 1);
    eventually(TIMEOUT, "it is published", async || {
        daemon.get("/metrics").await.body.contains("landfall_published_total 1")
    })
    .await;
}

#[tokio::test]
async fn short_topic_retention_is_a_warning() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.run(&["topic", "create", "orders", "--retention", "1h"]).await.code, 0);
    assert_eq!(sandbox.run(&["topic", "create", "payments"]).await.code, 0);
    let daemon = sandbox.serve().await;
    eventually(TIMEOUT, "the warning", async || daemon.stderr().contains("topic orders is too short")).await;
    let warning = "retention of a topic is shorter than its deduplication needs";
    assert!(daemon.stderr().contains(warning), "{}", daemon.stderr());
}

#[tokio::test]
async fn ended_redrive_jobs_are_removed_after_their_retention() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.run(&["migrate"]).await.code, 0);
    for (id, state, updated) in [("old", "finished", 1), ("open", "paused", 1), ("new", "stopped", i64::MAX)] {
        sandbox
            .sql(&format!(
                "INSERT INTO landfall_redrive (id, state, actor, reason, selection, lane, concurrency, ramp, created_at,
                     updated_at) VALUES ('{id}', '{state}', 'maria', '', '{{}}', 'slow', 1, 0, 1, {updated})"
            ))
            .await;
    }
    sandbox
        .sql("INSERT INTO landfall_redrive_item (redrive_id, dead_letter_id, state) VALUES ('old', 1, 'succeeded')")
        .await;
    sandbox.configure("[retention]\nredrive_jobs = \"10d\"\n");
    let _daemon = sandbox.serve().await;
    eventually(TIMEOUT, "the old job is removed", async || {
        sandbox.count("SELECT count(*) FROM landfall_redrive").await == 2
    })
    .await;
    assert_eq!(sandbox.count("SELECT count(*) FROM landfall_redrive WHERE id = 'old'").await, 0);
    assert_eq!(sandbox.count("SELECT count(*) FROM landfall_redrive_item").await, 0);
}
