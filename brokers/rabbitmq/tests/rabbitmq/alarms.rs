//! A server that runs out of room: an alarm concerns everybody who publishes.

use landfall_core::{Demands, Diagnose, ErrorCode, ErrorKind, Outcome, Rank, Span, TopicAdministration};
use landfall_testkit::eventually;

use crate::support::*;

/// The limits that raise both alarms at once, and those that take them back.
fn limits(disk: &str, memory: &str) -> String {
    format!(
        "rabbit_disk_monitor:set_disk_free_limit({disk}), vm_memory_monitor:set_vm_memory_high_watermark({memory})."
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_room_is_said_to_be_full_and_takes_everything_when_it_has_room_again() {
    let Some(server) = alone().await else { return };
    let broker = connect(&server.url(), &prefix(), &management(&server)).await;
    let other = connect(&server.url(), &prefix(), "connect_timeout=300").await;
    let _subscriber = subscribe(&other).await;
    let traffic = traffic(&broker).await;
    traffic.flows(200).await;
    server.control(&["eval", &limits("1000000000000000", "{absolute, 1000}")]).await.unwrap();
    let full = async || {
        let outcome = publish_one(&other, &keyed("a", 1)).await;
        matches!(outcome, Outcome::Refused(refusal) if refusal.code == ErrorCode::STORAGE_FULL && refusal.retriable)
    };
    eventually(SOON, "the server says that it is full", full).await;
    let made = tokio::time::timeout(SOON, other.create_topic(&orders(), None)).await;
    let found = async || {
        let findings = broker.diagnose(&Demands { window: Span::days(7) }).await.unwrap();
        let is_found = |check| findings.iter().any(|finding| finding.check == check && finding.rank == Rank::Latency);
        is_found("rabbitmq.disk-alarm") && is_found("rabbitmq.memory-alarm")
    };
    eventually(SOON, "the doctor finds both alarms", found).await;
    server.control(&["eval", &limits("1000000", "0.9")]).await.unwrap();
    traffic.flows(200).await;
    traffic.finish().await;
    let error = made.expect("nobody waits for the end of an alarm").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("raised an alarm"), "{error}");
}
