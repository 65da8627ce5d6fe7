//! A service is killed at every boundary of idempotent work (I2). Its clients then send all requests again.

use std::collections::BTreeMap;

use landfall::OutboxView;
use landfall::idempotency::{IdempotencyRecords, RecordFilter, RecordState, Resolution};
use landfall_system_tests::idempotent_worker::{IdempotentMode, IdempotentSetup};
use landfall_system_tests::{Failpoint, TIMEOUT};
use landfall_testkit::{Process, assert_idempotent_when_killed, assert_no_violation};
use tokio::process::Command;

/// The boundaries of idempotent work.
pub(crate) const BOUNDARIES: &[&str] =
    &["idempotency.before-commit", "idempotency.after-commit", "idempotency.after-claim", "idempotency.after-work"];

const KEYS: u32 = 10;
/// The hit at which the process is killed.
const HITS: [u32; 2] = [1, 4];

async fn run(setup: &IdempotentSetup) {
    let mut process = spawn(setup);
    let status = process.wait(TIMEOUT).await.unwrap();
    assert!(status.success(), "{:?}", process.stderr());
}

fn spawn(setup: &IdempotentSetup) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_idempotent_worker"));
    command.arg(serde_json::to_string(setup).unwrap());
    Process::spawn(command).unwrap()
}

/// Kills a process at the boundary, and runs all keys again.
async fn kill_and_repeat(setup: &IdempotentSetup, boundary: &str, hit: u32) {
    let failpoint = Failpoint::kill(boundary, hit);
    let mut process = spawn(&IdempotentSetup { failpoint: Some(failpoint.clone()), ..setup.clone() });
    let status = process.wait(TIMEOUT).await.unwrap();
    assert!(!status.success(), "it was not killed at {boundary}");
    assert!(process.stderr().contains(&failpoint.announcement()), "{boundary}: {:?}", process.stderr());
    run(setup).await;
}

fn setup(folder: &tempfile::TempDir, mode: IdempotentMode) -> IdempotentSetup {
    IdempotentSetup { folder: folder.path().to_owned(), mode, keys: KEYS, failpoint: None }
}

/// Returns how often each key took effect.
async fn effects(pool: &sqlx::SqlitePool) -> BTreeMap<String, i64> {
    let query = "SELECT key, count(*) FROM effects GROUP BY key";
    let rows: Vec<(String, i64)> = sqlx::query_as(query).fetch_all(pool).await.unwrap();
    rows.into_iter().collect()
}

/// Returns a violation for each key whose number of effects is not as expected.
fn violations(effects: &BTreeMap<String, i64>, what: &str, expected: impl Fn(i64) -> bool) -> Vec<String> {
    let count = |key: u32| effects.get(&key.to_string()).copied().unwrap_or_default();
    let wrong = (0..KEYS).filter(|key| !expected(count(*key)));
    wrong.map(|key| format!("{what}: key {key} took effect {} times", count(key))).collect()
}

fn report(violations: &[String]) {
    assert_no_violation(violations.is_empty(), violations.join("\n"));
}

#[tokio::test]
async fn killed_transaction_has_one_effect_and_one_message_per_key() {
    for boundary in &BOUNDARIES[..2] {
        for hit in HITS {
            let folder = tempfile::tempdir().unwrap();
            let setup = setup(&folder, IdempotentMode::InTransaction);
            kill_and_repeat(&setup, boundary, hit).await;
            let shop = setup.shop().await.unwrap();
            let mut found = violations(&effects(shop.pool()).await, boundary, |count| count == 1);
            let messages = shop.stats().await.unwrap().pending;
            if messages != u64::from(KEYS) {
                found.push(format!("{boundary}: {messages} messages for {KEYS} keys"));
            }
            report(&found);
        }
    }
}

/// A rerun costs at most one effect too many, and only for the attempt that was killed after its work.
#[tokio::test]
async fn killed_attempt_is_rerun_after_its_lease() {
    for (boundary, most) in [(BOUNDARIES[2], 0), (BOUNDARIES[3], 1)] {
        for hit in HITS {
            let folder = tempfile::tempdir().unwrap();
            let setup = setup(&folder, IdempotentMode::Rerun);
            kill_and_repeat(&setup, boundary, hit).await;
            let effects = effects(setup.bank().await.unwrap().pool()).await;
            let mut found = violations(&effects, boundary, |count| count >= 1);
            let doubled: i64 = effects.values().map(|count| count - 1).sum();
            if doubled != most {
                found.push(format!("{boundary}: {doubled} effects too many, and not {most}"));
            }
            report(&found);
        }
    }
}

/// The key of the killed attempt waits for a person, and never takes effect twice.
#[tokio::test]
async fn killed_attempt_is_uncertain_until_resolved() {
    for (boundary, happened) in [(BOUNDARIES[2], 0), (BOUNDARIES[3], 1)] {
        for hit in HITS {
            let folder = tempfile::tempdir().unwrap();
            let setup = setup(&folder, IdempotentMode::Uncertain);
            kill_and_repeat(&setup, boundary, hit).await;
            let (shop, bank) = (setup.shop().await.unwrap(), setup.bank().await.unwrap());
            let filter = RecordFilter { state: Some(RecordState::Uncertain), ..RecordFilter::default() };
            let uncertain = shop.find_records(&filter, 10).await.unwrap();
            let [row] = &uncertain[..] else { panic!("{boundary}: {uncertain:?}") };
            let before = effects(bank.pool()).await;
            assert_eq!(before.get(&row.key).copied().unwrap_or_default(), happened, "{boundary}");
            if happened == 0 {
                // A person has looked, and nothing had happened.
                assert!(shop.resolve_record(row.id, &Resolution::Rerun, "ann").await.unwrap());
                run(&setup).await;
            }
            report(&violations(&effects(bank.pool()).await, boundary, |count| count == 1));
        }
    }
}

/// Stops a process at the boundary for longer than its lease, while another one runs all keys; then lets it go on.
async fn stop_and_overtake(setup: &IdempotentSetup, boundary: &str) {
    let failpoint = Failpoint::stop(boundary, 1);
    let mut slow = spawn(&IdempotentSetup { failpoint: Some(failpoint), ..setup.clone() });
    slow.wait_until_stopped().await.unwrap();
    run(setup).await;
    slow.resume().unwrap();
    let status = slow.wait(TIMEOUT).await.unwrap();
    assert!(status.success(), "{boundary}: {:?}", slow.stderr());
}

/// The paused process cannot settle what another one has taken over: it answers as the winner, and goes on.
#[tokio::test]
async fn paused_process_is_fenced_after_its_lease() {
    for boundary in &BOUNDARIES[2..] {
        let folder = tempfile::tempdir().unwrap();
        let setup = setup(&folder, IdempotentMode::Rerun);
        stop_and_overtake(&setup, boundary).await;
        let effects = effects(setup.bank().await.unwrap().pool()).await;
        let mut found = violations(&effects, boundary, |count| count == 1 || count == 2);
        let doubled: Vec<&String> = effects.iter().filter(|(_, count)| **count == 2).map(|(key, _)| key).collect();
        if doubled != ["0"] {
            found.push(format!("{boundary}: only the key of the paused attempt runs again, and not {doubled:?}"));
        }
        let records = setup.shop().await.unwrap().find_records(&RecordFilter::default(), 100).await.unwrap();
        if records.len() != KEYS as usize || records.iter().any(|row| row.state != RecordState::Completed) {
            found.push(format!("{boundary}: not every key is completed: {records:?}"));
        }
        report(&found);
    }
}

/// Under the other policy the key waits, and the process that was only slow completes it.
#[tokio::test]
async fn paused_process_completes_its_uncertain_key() {
    for boundary in &BOUNDARIES[2..] {
        let folder = tempfile::tempdir().unwrap();
        let setup = setup(&folder, IdempotentMode::Uncertain);
        stop_and_overtake(&setup, boundary).await;
        report(&violations(&effects(setup.bank().await.unwrap().pool()).await, boundary, |count| count == 1));
        let stats = setup.shop().await.unwrap().record_stats().await.unwrap();
        assert_eq!((stats.uncertain, stats.in_flight), (0, 0), "{boundary}");
    }
}

/// Runs all keys through the public check: in a process of their own, which is killed at each of `boundaries`.
async fn check_killed(mode: IdempotentMode, boundaries: &[&str]) {
    let create = async || {
        let folder = tempfile::tempdir().unwrap();
        let setup = setup(&folder, mode);
        (folder, setup)
    };
    let call = async |(_, setup): &(tempfile::TempDir, IdempotentSetup), boundary: Option<&str>| {
        let failpoint = boundary.map(|boundary| Failpoint::kill(boundary, 1));
        let mut process = spawn(&IdempotentSetup { failpoint, ..setup.clone() });
        process.wait(TIMEOUT).await.unwrap().success().then_some(())
    };
    let evidence = async |(_, setup): &(tempfile::TempDir, IdempotentSetup)| {
        let (shop, bank) = (setup.shop().await.unwrap(), setup.bank().await.unwrap());
        (effects(shop.pool()).await, effects(bank.pool()).await, shop.stats().await.unwrap().pending)
    };
    assert_idempotent_when_killed(boundaries, create, call, evidence).await;
}

#[tokio::test]
async fn process_killed_at_its_failpoints_is_idempotent() {
    check_killed(IdempotentMode::InTransaction, &BOUNDARIES[..2]).await;
    check_killed(IdempotentMode::Rerun, &BOUNDARIES[2..3]).await;
}

/// The planted bug: work in another system without a key of its own is run again after a kill.
#[tokio::test]
#[should_panic(expected = "the first repeat after a kill at idempotency.after-work took effect differently")]
async fn rerun_of_work_without_a_key_of_its_own_is_caught() {
    check_killed(IdempotentMode::Rerun, &BOUNDARIES[3..]).await;
}
