//! Tests that cannot run are reported as not run.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use landfall_testkit::servers::fresh_postgres_database;
use landfall_testkit::{NOT_RUN_FILE, Process};

const IS_CHILD: &str = "LANDFALL_TESTKIT_IS_CHILD";

/// Not a test of its own: the next test runs it without a server.
#[tokio::test]
async fn helper_test_that_needs_a_database() {
    if std::env::var_os(IS_CHILD).is_some() {
        assert!(fresh_postgres_database().await.is_none());
    }
}

#[tokio::test]
async fn test_without_server_is_reported_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("not-run");
    for _ in 0..2 {
        let mut command = tokio::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "helper_test_that_needs_a_database", "--nocapture"]);
        // Nothing listens on port 1.
        command.env("LANDFALL_TEST_POSTGRES_URL", "postgres://user@127.0.0.1:1/none").env(IS_CHILD, "yes");
        command.env(NOT_RUN_FILE, &file);
        let mut child = Process::spawn(command).unwrap();
        assert!(child.wait(Duration::from_secs(60)).await.unwrap().success());
        let report = child.stderr().into_iter().find(|line| line.starts_with("landfall-not-run: "));
        assert!(report.is_some_and(|line| line.contains("not_run::helper_test_that_needs_a_database: cannot create")));
    }
    let collected = std::fs::read_to_string(&file).unwrap();
    assert_eq!(collected.lines().count(), 2, "one line per run: {collected}");
}
