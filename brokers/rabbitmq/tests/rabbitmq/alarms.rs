//! A server without space raises an alarm, which blocks all publishing connections.

use landfall_core::adapter::Demands;
use landfall_core::{Diagnose, ErrorCode, ErrorKind, Outcome, Rank, Span, TopicAdministration};
use landfall_testkit::eventually;

use crate::support::*;

/// Erlang code that sets the limits of both alarms, to raise or to clear them.
fn limits(disk: &str, memory: &str) -> String {
    format!(
        "rabbit_disk_monitor:set_disk_free_limit({disk}), vm_memory_monitor:set_vm_memory_high_watermark({memory})."
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn resource_alarm_refuses_as_full_and_recovers() {
    let Some(server) = exclusive().await else { return };
    let broker = connect(&server.url(), &prefix(), &management(&server)).await;
    let other = connect(&server.url(), &prefix(), "connect_timeout=300").await;
    let _subscriber = subscribe(&other).await;
    let traffic = traffic(&broker).await;
    traffic.wait_for_progress(200).await;
    server.control(&["eval", &limits("1000000000000000", "{absolute, 1000}")]).await.unwrap();
    let full = async || {
        let outcome = publish_one(&other, &keyed("a", 1)).await;
        matches!(outcome, Outcome::Refused(refusal) if refusal.code == ErrorCode::STORAGE_FULL && refusal.retriable)
    };
    eventually(SOON, "the server refuses messages as full", full).await;
    let created = tokio::time::timeout(SOON, other.create_topic(&orders(), None)).await;
    let found = async || {
        let findings = broker.diagnose(&Demands { window: Span::days(7) }).await.unwrap();
        let is_found = |check| findings.iter().any(|finding| finding.check == check && finding.rank == Rank::Latency);
        is_found("rabbitmq.disk-alarm") && is_found("rabbitmq.memory-alarm")
    };
    eventually(SOON, "the doctor finds both alarms", found).await;
    server.control(&["eval", &limits("1000000", "0.9")]).await.unwrap();
    traffic.wait_for_progress(200).await;
    traffic.finish().await;
    let error = created.expect("the call does not wait for the alarm to end").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("raised a resource alarm"), "{error}");
}
