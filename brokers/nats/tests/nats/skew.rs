//! Clocks that differ, found by the doctor. The server is written in Go, which asks the kernel for the time and cannot be
//! told another; so it is the doctor's own clock that goes wrong here, in a process of its own.
use std::process::Command;
use std::time::Duration;

use landfall_core::{Demands, Diagnose, Finding, Rank, Span};
use landfall_testkit::{current_test, not_run};

use crate::support::{connect, own};

/// Where the other process finds the server, and what it finds about it.
const URL: &str = "LANDFALL_TEST_SKEWED_URL";
const SAID: &str = "found: ";

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_differs_from_the_servers_is_found_with_how_much() {
    let Some(server) = own().await else { return };
    if Command::new("faketime").arg("--version").output().is_err() {
        return not_run(&current_test(), "there is no faketime; on Debian: apt install faketime");
    }
    let url = format!("{}?monitor={}", server.url(), server.monitor());
    assert_eq!(found_with_a_clock_at(&url, "+0"), None);
    let behind = found_with_a_clock_at(&url, "+3600").unwrap();
    assert!(behind.contains("s behind this machine's"), "{behind}");
    let ahead = found_with_a_clock_at(&url, "-30").unwrap();
    assert!(ahead.contains("s ahead of this machine's"), "{ahead}");
}

/// What a doctor says about the clock of the server whose own clock is so many seconds off.
fn found_with_a_clock_at(url: &str, offset: &str) -> Option<String> {
    let output = Command::new("faketime")
        .args(["--exclude-monotonic", "-f", offset])
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "skew::child_looks_at_the_clock"])
        .env(URL, url)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said.lines().find_map(|line| line.split_once(SAID).map(|(_, finding)| finding.to_owned()))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs in a process whose clock is wrong"]
#[allow(clippy::print_stdout, reason = "the other half of the test reads it")]
async fn child_looks_at_the_clock() {
    let broker = connect(&std::env::var(URL).unwrap()).await;
    let demands = Demands { window: Span::Time(Duration::from_secs(3600)) };
    let found: Vec<Finding> = broker.diagnose(&demands).await.unwrap();
    for finding in found.iter().filter(|finding| finding.check == "nats.clock-skew") {
        assert_eq!(finding.rank, Rank::Duplicates);
        println!("\n{SAID}{}", finding.what);
    }
}
