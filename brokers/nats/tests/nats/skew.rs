//! The doctor reports clock skew. The server is written in Go, which reads the time by system call, out of faketime's
//! reach. So the doctor runs in a separate process with a wrong clock instead.
use std::process::Command;
use std::time::Duration;

use landfall_core::adapter::Demands;
use landfall_core::{Diagnose, Finding, Rank, Span};
use landfall_testkit::{current_test, not_run};

use crate::support::{connect, own};

/// Environment variable with the server's URL for the child process, and the prefix of its output.
const URL: &str = "LANDFALL_TEST_SKEWED_URL";
const FINDING_PREFIX: &str = "found: ";

#[tokio::test(flavor = "multi_thread")]
async fn clock_skew_is_a_finding() {
    let Some(server) = own().await else { return };
    if Command::new("faketime").arg("--version").output().is_err() {
        return not_run(&current_test(), "faketime is not installed; on Debian: apt install faketime");
    }
    let url = format!("{}?monitor={}", server.url(), server.monitor());
    assert_eq!(finding_with_clock_at(&url, "+0"), None);
    let behind = finding_with_clock_at(&url, "+3600").unwrap();
    assert!(behind.contains("s behind this machine's"), "{behind}");
    let ahead = finding_with_clock_at(&url, "-30").unwrap();
    assert!(ahead.contains("s ahead of this machine's"), "{ahead}");
}

/// Returns the clock finding of a doctor whose own clock is this many seconds off.
fn finding_with_clock_at(url: &str, offset: &str) -> Option<String> {
    let output = Command::new("faketime")
        .args(["--exclude-monotonic", "-f", offset])
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "skew::child_reports_clock_skew"])
        .env(URL, url)
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && stdout.contains("1 passed"),
        "{stdout}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    stdout.lines().find_map(|line| line.split_once(FINDING_PREFIX).map(|(_, finding)| finding.to_owned()))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs in a process with a wrong clock"]
#[allow(clippy::print_stdout, reason = "the parent process reads the finding from stdout")]
async fn child_reports_clock_skew() {
    let broker = connect(&std::env::var(URL).unwrap()).await;
    let demands = Demands { window: Span::Time(Duration::from_secs(3600)) };
    let found: Vec<Finding> = broker.diagnose(&demands).await.unwrap();
    for finding in found.iter().filter(|finding| finding.check == "nats.clock-skew") {
        assert_eq!(finding.rank, Rank::Duplicates);
        println!("\n{FINDING_PREFIX}{}", finding.what);
    }
}
