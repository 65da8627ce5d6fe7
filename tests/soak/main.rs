//! The soak as a test: a minute of all faults on each database, planted bugs that it must detect, and the time of a
//! takeover. `make soak` runs it for ten minutes each.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a test fails by panicking")]

mod command;
mod minute;
mod planted;
mod takeover;
mod unordered;

use landfall::ErrorKind;
use landfall_system_tests::soak::{Figures, Options, run};
use landfall_testkit::{current_test, not_run};
use tokio::sync::{Mutex, MutexGuard};

/// The program that runs the processes of a soak.
const SOAK: &str = env!("CARGO_BIN_EXE_soak");

/// Serializes the tests: each of them keeps a machine busy.
async fn alone() -> MutexGuard<'static, ()> {
    static RUNNING: Mutex<()> = Mutex::const_new(());
    RUNNING.lock().await
}

/// Returns `None` without the server, after reporting that the test is not run.
async fn soak(options: &Options) -> Option<Figures> {
    match run(options).await {
        Ok(figures) => {
            println!("{figures}");
            Some(figures)
        }
        Err(error) if error.kind() == ErrorKind::Unavailable => {
            not_run(&current_test(), &error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A new seed each time, printed with the figures; `LANDFALL_TEST_SEED` repeats a run, as far as scheduling allows.
fn seed() -> u64 {
    match std::env::var("LANDFALL_TEST_SEED") {
        Ok(seed) => seed.parse().expect("LANDFALL_TEST_SEED is a number"),
        Err(_) => rand::random_range(0..1_000_000),
    }
}
