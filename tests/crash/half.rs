//! Sender and coordinator of half messages are killed at every boundary (P7, K2).
//!
//! Afterwards a coordinator alone resolves what is left. A message is published if and only if its local transaction
//! committed, each message has one verdict, and the audit has it once.

use std::collections::BTreeSet;
use std::path::Path;

use landfall::{HalfMessages, HalfState, OutboxFilter, OutboxView};
use landfall_system_tests::half_worker::HalfSetup;
use landfall_system_tests::{Failpoint, TIMEOUT};
use landfall_testkit::{Process, assert_no_violation, eventually};
use tokio::process::Command;

/// The boundaries of half messages.
pub(crate) const BOUNDARIES: &[&str] = &[
    "half.after-prepare",
    "half.before-local-commit",
    "half.after-local-commit",
    "check-back.after-claim",
    "check-back.after-answer",
    "check-back.after-write",
];

/// Between the archive and the removal of half messages.
pub(crate) const ARCHIVED: &str = "housekeeping.after-archive";

/// The hit at which the process is killed.
const HITS: [u32; 2] = [1, 4];
const MESSAGES: u32 = 40;

fn spawn(setup: &HalfSetup) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_half_worker"));
    command.arg(serde_json::to_string(setup).unwrap());
    Process::spawn(command).unwrap()
}

async fn kill_at(setup: &HalfSetup, boundary: &str, hit: u32, run: u32) {
    let failpoint = Failpoint::kill(boundary, hit);
    let mut process = spawn(&HalfSetup { run, failpoint: Some(failpoint.clone()), ..setup.clone() });
    let status = process.wait(TIMEOUT).await.unwrap();
    assert!(!status.success(), "it was not killed at {boundary}");
    assert!(process.stderr().contains(&failpoint.announcement()), "{boundary}: {:?}", process.stderr());
}

/// Coordinates until everything is decided.
async fn drain(setup: &HalfSetup) {
    let mut process = spawn(&HalfSetup { messages: 0, run: u32::MAX, ..setup.clone() });
    let store = setup.store().await.unwrap();
    eventually(TIMEOUT, "every verdict", async || {
        let stats = store.half_message_stats().await.unwrap();
        stats.prepared + stats.parked == 0
    })
    .await;
    process.stop(TIMEOUT).await.unwrap();
}

async fn texts(pool: &sqlx::SqlitePool, query: &'static str) -> Vec<String> {
    sqlx::query_scalar(query).fetch_all(pool).await.unwrap()
}

async fn check(setup: &HalfSetup, boundary: &str) {
    let (store, shop) = (setup.store().await.unwrap(), setup.shop().await.unwrap());
    let orders = texts(shop.pool(), "SELECT id FROM orders").await.len();
    let rows = store.find_half_messages(&Default::default(), 10_000).await.unwrap().len();
    assert!(orders > 0 && rows > orders, "{boundary}: the run did nothing");
    let violations = violations(setup).await;
    assert_no_violation(violations.is_empty(), format!("{boundary}: {violations:?}"));
}

/// Compares verdicts, outbox and audit with the local transactions.
pub(crate) async fn violations(setup: &HalfSetup) -> Vec<String> {
    let (store, shop) = (setup.store().await.unwrap(), setup.shop().await.unwrap());
    let orders: BTreeSet<String> = texts(shop.pool(), "SELECT id FROM orders").await.into_iter().collect();
    let rows = store.find_half_messages(&Default::default(), 10_000).await.unwrap();
    let committed: BTreeSet<String> =
        rows.iter().filter(|row| row.state == HalfState::Committed).map(|row| row.business_id.clone()).collect();
    let enqueued = store.list(&OutboxFilter::default(), 10_000).await.unwrap();
    let ids: BTreeSet<_> = enqueued.iter().map(|row| row.message_id).collect();
    let expected: BTreeSet<_> = rows.iter().filter(|row| orders.contains(&row.business_id)).map(|row| row.id).collect();
    let audited = "SELECT count(*) FROM landfall_audit WHERE action IN ('half-commit', 'half-rollback')";
    let audited: i64 = sqlx::query_scalar(audited).fetch_one(store.pool()).await.unwrap();
    let mut violations = Vec::new();
    if committed != orders {
        violations.push(format!("verdicts {committed:?} differ from the local transactions {orders:?}"));
    }
    if ids != expected || enqueued.len() != expected.len() {
        violations.push(format!("{} messages are enqueued, and {} transactions committed", ids.len(), orders.len()));
    }
    if rows.iter().any(|row| row.contradicted_at.is_some()) {
        violations.push("a verdict is contradicted".to_owned());
    }
    if audited != rows.len() as i64 {
        violations.push(format!("the audit has {audited} verdicts for {} messages", rows.len()));
    }
    violations
}

pub(crate) fn setup(folder: &Path, archive: bool) -> HalfSetup {
    HalfSetup { folder: folder.to_owned(), run: 0, messages: MESSAGES, failpoint: None, archive }
}

/// A crash leaves a half message in the archive and in the table, never in neither.
#[tokio::test]
async fn killed_archive_has_every_removed_half_message() {
    let folder = tempfile::tempdir().unwrap();
    let setup = setup(folder.path(), true);
    // The first one: after a kill, one removal may cover everything.
    for run in 0..3 {
        kill_at(&setup, ARCHIVED, 1, run).await;
    }
    let store = setup.store().await.unwrap();
    let kept = store.find_half_messages(&Default::default(), 10_000).await.unwrap();
    let archived = std::fs::read_to_string(setup.archive_file()).unwrap();
    let both = kept.iter().filter(|row| archived.contains(&row.id.to_string())).count();
    assert!(both > 0, "it was not killed between the archive and the removal");

    let mut process = spawn(&HalfSetup { messages: 0, run: u32::MAX, ..setup.clone() });
    eventually(TIMEOUT, "an empty table", async || {
        store.find_half_messages(&Default::default(), 1).await.unwrap().is_empty()
    })
    .await;
    process.stop(TIMEOUT).await.unwrap();
    // The audit has every verdict, and is not removed.
    let audited = "SELECT lower(message_id) || ' ' || iif(action = 'half-commit', 'committed', 'rolled_back') \
                   FROM landfall_audit WHERE action IN ('half-commit', 'half-rollback')";
    let audited: BTreeSet<String> = texts(store.pool(), audited).await.into_iter().collect();
    let archived = std::fs::read_to_string(setup.archive_file()).unwrap();
    let archived: BTreeSet<String> = archived.lines().map(str::to_owned).collect();
    assert!(!audited.is_empty());
    assert_no_violation(audited == archived, format!("decided {audited:?}, archived {archived:?}"));
}

#[tokio::test]
async fn killed_half_message_has_the_verdict_of_its_transaction() {
    for boundary in BOUNDARIES {
        let folder = tempfile::tempdir().unwrap();
        let setup = setup(folder.path(), false);
        for (run, hit) in HITS.into_iter().enumerate() {
            kill_at(&setup, boundary, hit, run as u32).await;
        }
        drain(&setup).await;
        check(&setup, boundary).await;
    }
}
