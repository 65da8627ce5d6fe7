//! Tests without their server are reported as not run, and fail in CI.

use std::path::Path;
use std::time::Duration;

use landfall_testkit::servers::{SharedServer, fresh_postgres_database};
use landfall_testkit::{NOT_RUN_FILE, Process, REQUIRE_SERVERS, current_test, not_run};

const CHILD: &str = "not_run::child_needs_a_database";

#[tokio::test]
#[ignore = "runs as a child process of the tests below, without a server"]
async fn child_needs_a_database() {
    assert!(fresh_postgres_database().await.is_none());
}

static MISSING: SharedServer<()> = SharedServer::new();

/// Starts no server.
async fn missing() -> Option<()> {
    not_run(&current_test(), "the server is not installed");
    None
}

#[tokio::test]
#[ignore = "runs as a child process of a test below, without a server"]
async fn first_child_shares_a_server() {
    assert!(MISSING.shared_with(missing).await.is_none());
}

#[tokio::test]
#[ignore = "runs as a child process of a test below, without a server"]
async fn second_child_shares_a_server() {
    assert!(MISSING.exclusive_with(missing).await.is_none());
}

/// Runs the child with the variable `set`, if any. Returns whether it passed, and what it printed to stderr.
async fn run_without_server(file: &Path, set: Option<(&str, &str)>) -> (bool, Vec<String>) {
    run_children(&["--exact", CHILD], file, set).await
}

/// Runs the ignored tests that `filter` selects.
async fn run_children(filter: &[&str], file: &Path, set: Option<(&str, &str)>) -> (bool, Vec<String>) {
    let mut command = tokio::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--nocapture", "--test-threads=1"]).args(filter);
    // Nothing listens on port 1.
    command.env("LANDFALL_TEST_POSTGRES_URL", "postgres://user@127.0.0.1:1/none").env(NOT_RUN_FILE, file);
    command.env_remove("CI").env_remove(REQUIRE_SERVERS).envs(set);
    let mut child = Process::spawn(command).unwrap();
    let has_passed = child.wait(Duration::from_secs(60)).await.unwrap().success();
    (has_passed, child.stderr())
}

#[tokio::test]
async fn test_without_server_is_reported_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("not-run");
    for _ in 0..2 {
        let (has_passed, stderr) = run_without_server(&file, None).await;
        assert!(has_passed, "{stderr:?}");
        let report = stderr.into_iter().find(|line| line.starts_with("landfall-not-run: "));
        assert!(report.is_some_and(|line| line.contains(&format!("::{CHILD}: cannot create"))));
    }
    let collected = std::fs::read_to_string(&file).unwrap();
    assert_eq!(collected.lines().count(), 2, "one line per run: {collected}");
}

#[tokio::test]
async fn test_without_server_fails_in_ci() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("not-run");
    for set in [("CI", "true"), (REQUIRE_SERVERS, "1")] {
        let (has_passed, stderr) = run_without_server(&file, Some(set)).await;
        assert!(!has_passed && stderr.iter().any(|line| line.contains("must run in CI")), "{set:?}: {stderr:?}");
    }
    assert!(!file.exists(), "a failed test was reported as not run");
}

#[tokio::test]
async fn every_test_of_a_missing_shared_server_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("not-run");
    let (has_passed, stderr) = run_children(&["child_shares_a_server"], &file, None).await;
    assert!(has_passed, "{stderr:?}");
    let collected = std::fs::read_to_string(&file).unwrap();
    for child in ["first_child_shares_a_server", "second_child_shares_a_server"] {
        assert_eq!(collected.lines().filter(|line| line.contains(child)).count(), 1, "{collected}");
    }
    let (has_passed, stderr) = run_children(&["child_shares_a_server"], &file, Some(("CI", "true"))).await;
    let failed = stderr.iter().filter(|line| line.contains("must run in CI")).count();
    assert!(!has_passed && failed == 2, "{stderr:?}");
}
