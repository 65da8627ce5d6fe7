//! The doctor's checks of a log: each finding is provoked once, and a correct setup yields none.

use std::path::Path;
use std::time::Duration;

use landfall_core::adapter::Demands;
use landfall_core::{Broker, Diagnose, Finding, Rank, Span, StartAt, TopicName};
use landfall_log::{Acknowledge, Log, Options, TopicSettings};
use landfall_testkit::{SMALL_DISK, eventually, run_on_a_small_disk};

use crate::support::*;

const DEMANDS: Demands = Demands { window: Span::Time(Duration::from_secs(45 * 24 * 3600)) };

/// A folder on a real disk; the folder for temporary files may be in memory.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Findings of a process that reads the log while another has it open.
async fn diagnose_read_only(folder: &Path) -> Vec<Finding> {
    Log::open_read_only(folder).unwrap().diagnose(&DEMANDS).await.unwrap()
}

fn checks(findings: &[Finding]) -> Vec<(&'static str, Rank)> {
    findings.iter().map(|finding| (finding.check, finding.rank)).collect()
}

/// Opens a log with topic `orders` and one message. Its own maintenance runs rarely enough to remove nothing.
async fn log_with(folder: &Path, settings: TopicSettings) -> Log {
    let log = Log::open(folder, Options { maintenance: Duration::from_secs(3600), ..one_partition() }).unwrap();
    log.create_topic(&topic(), Some(1), settings).await.unwrap();
    publish(&log, &[message("a", 1)]).await;
    log
}

#[tokio::test]
async fn default_log_has_no_findings() {
    let folder = folder();
    let log = log_with(folder.path(), TopicSettings::default()).await;
    assert_eq!(diagnose_read_only(folder.path()).await, []);
    let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
    next(&mut subscriber).await.ack().await.unwrap();
    assert_eq!(log.diagnose(&DEMANDS).await.unwrap(), []);
    assert_eq!(diagnose_read_only(folder.path()).await, []);
    assert_eq!(Options::default().diagnose(&DEMANDS), []);
}

#[tokio::test]
async fn doctor_reports_topic_that_may_drop_unread_messages() {
    let folder = folder();
    let settings = TopicSettings {
        retention_time: Some(Duration::from_secs(100 * 24 * 3600)),
        may_drop_unread: true,
        ..TopicSettings::default()
    };
    let log = log_with(folder.path(), settings).await;
    let found = diagnose_read_only(folder.path()).await;
    assert_eq!(checks(&found), [("log.may-drop-unread", Rank::Loss)]);
    assert_eq!(found[0].about, "topic orders");
    assert_eq!(found[0].mend, "landfall topic configure orders --may-drop-unread=false");
    assert!(found[0].what.contains("after 100d"), "{}", found[0].what);
    assert_eq!(log.diagnose(&DEMANDS).await.unwrap(), found, "the open log reports the same");
}

#[tokio::test]
async fn doctor_reports_short_or_missing_deduplication_window() {
    let folder = folder();
    let week = TopicSettings { retention_time: Span::days(7).time(), ..TopicSettings::default() };
    let log = log_with(folder.path(), week).await;
    log.seek(&topic(), &group(), StartAt::End).await.unwrap();
    let found = diagnose_read_only(folder.path()).await;
    assert_eq!(checks(&found), [("log.dedup-window", Rank::Duplicates)]);
    assert!(found[0].what.contains("7d") && found[0].what.contains("45d"), "{}", found[0].what);
    assert_eq!(found[0].mend, "landfall topic configure orders --retention=45d");

    let every_copy = TopicSettings { deduplicate: false, ..TopicSettings::default() };
    log.configure_topic(&topic(), every_copy).await.unwrap();
    assert_eq!(checks(&diagnose_read_only(folder.path()).await), [("log.deduplicate", Rank::Duplicates)]);

    let by_bytes = TopicSettings { retention_bytes: Some(1 << 30), ..TopicSettings::default() };
    log.configure_topic(&topic(), by_bytes).await.unwrap();
    let found = diagnose_read_only(folder.path()).await;
    assert_eq!(checks(&found), [("log.dedup-window", Rank::Duplicates)]);
    assert_eq!(found[0].mend, "landfall topic configure orders --retention-bytes=unlimited");
}

#[tokio::test]
async fn doctor_reports_cleaned_topic_without_a_group() {
    let folder = folder();
    let compacted = TopicSettings { compact: true, ..TopicSettings::default() };
    let log = log_with(folder.path(), compacted).await;
    assert_eq!(checks(&diagnose_read_only(folder.path()).await), [("log.no-group", Rank::Loss)]);
    // A group fixes it.
    log.seek(&topic(), &group(), StartAt::Beginning).await.unwrap();
    assert_eq!(diagnose_read_only(folder.path()).await, [], "messages unread by a group are never removed");
}

#[tokio::test]
async fn doctor_reports_group_behind_the_retention() {
    let folder = folder();
    let short = TopicSettings { retention_time: Some(Duration::from_millis(1)), ..TopicSettings::default() };
    let log = log_with(folder.path(), short).await;
    log.seek(&topic(), &group(), StartAt::Beginning).await.unwrap();
    let late = async |rank: Rank| {
        let found = diagnose_read_only(folder.path()).await;
        found.into_iter().find(|finding| finding.check == "log.group-behind" && finding.rank == rank)
    };
    eventually(SOON, "the message is older than its retention", async || late(Rank::Latency).await.is_some()).await;
    let found = late(Rank::Latency).await.unwrap();
    assert_eq!(found.about, "group stock on orders");
    assert!(found.what.contains("1 unread") && found.mend.contains("--group stock"), "{found:?}");

    log.configure_topic(&topic(), TopicSettings { may_drop_unread: true, ..short }).await.unwrap();
    assert!(late(Rank::Loss).await.is_some(), "the message is about to be dropped");
    log.seek(&topic(), &group(), StartAt::End).await.unwrap();
    assert!(late(Rank::Loss).await.is_none(), "no unread message is left");
}

#[tokio::test]
async fn damage_is_a_finding_of_its_topic_and_hides_no_others() {
    let folder = folder();
    let log = log_with(folder.path(), TopicSettings::default()).await;
    let other = TopicName::new("payments").unwrap();
    log.create_topic(&other, Some(1), TopicSettings { deduplicate: false, ..TopicSettings::default() }).await.unwrap();
    publish_each(&log, 2..9).await;
    log.close().await.unwrap();
    let segment = segments(folder.path(), 0).pop().unwrap();
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[HEADER + 80] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    let found = diagnose_read_only(folder.path()).await;
    assert_eq!(checks(&found), [("log.damage", Rank::Loss), ("log.deduplicate", Rank::Duplicates)]);
    assert!(found[0].what.contains(".segment") && found[0].mend.contains("verify orders"), "{:?}", found[0]);
}

#[tokio::test]
async fn doctor_reports_acknowledgement_before_sync() {
    let folder = folder();
    for (acknowledge, lost_with) in [(Acknowledge::Written, "a power cut"), (Acknowledge::None, "the process")] {
        let options = Options { acknowledge, ..one_partition() };
        let log = Log::open(folder.path(), options).unwrap();
        let found = log.diagnose(&DEMANDS).await.unwrap();
        assert_eq!(checks(&found), [("log.acknowledge", Rank::Loss)]);
        assert!(found[0].what.contains(lost_with), "{}", found[0].what);
        assert_eq!(options.diagnose(&DEMANDS), found);
        log.close().await.unwrap();
    }
}

#[test]
fn doctor_checks_default_settings_of_future_topics() {
    let settings = TopicSettings {
        retention_time: Some(Duration::from_secs(3600)),
        may_drop_unread: true,
        ..TopicSettings::default()
    };
    let found = Options { topic: settings, ..Options::default() }.diagnose(&DEMANDS);
    assert_eq!(checks(&found), [("log.may-drop-unread", Rank::Loss), ("log.dedup-window", Rank::Duplicates)]);
    assert_eq!(found[0].mend, "may_drop_unread = false under [broker]");
    assert_eq!(found[1].mend, "retention = \"45d\" under [broker]");
}

#[test]
fn doctor_reports_log_in_memory_and_nearly_full_disk() {
    run_on_a_small_disk("doctor::child_diagnoses_a_log_on_a_small_disk", 8);
}

#[tokio::test]
#[ignore = "runs as a child process of the test above"]
async fn child_diagnoses_a_log_on_a_small_disk() {
    let folder = std::env::var_os(SMALL_DISK).unwrap();
    let log = log_with(Path::new(&folder), TopicSettings::default()).await;
    let expected = [("log.file-system", Rank::Loss), ("log.disk-full", Rank::Latency)];
    assert_eq!(checks(&diagnose_read_only(Path::new(&folder)).await), expected);
    assert_eq!(checks(&log.diagnose(&DEMANDS).await.unwrap()), expected);
}
