//! A soak as a test: one at a time, with a seed that can be repeated.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "a test fails by panicking")]

use landfall::ErrorKind;
use landfall_testkit::{current_test, not_run};
use tokio::sync::{Mutex, MutexGuard};

use super::figures::Figures;
use super::options::Options;
use super::run::run;

/// Serializes the tests of a program: each of them keeps a machine busy.
pub async fn alone() -> MutexGuard<'static, ()> {
    static RUNNING: Mutex<()> = Mutex::const_new(());
    RUNNING.lock().await
}

/// Runs a soak and prints its figures. Returns `None` without a server, after reporting that the test is not run.
///
/// # Panics
///
/// If the soak was aborted.
pub async fn soak(options: &Options) -> Option<Figures> {
    match run(options).await {
        Ok(figures) => {
            println!("{figures}");
            Some(figures)
        }
        Err(error) if error.kind() == ErrorKind::Unavailable => {
            not_run(&current_test(), &error.to_string());
            None
        }
        Err(error) => panic!("seed {}: {error}", options.seed),
    }
}

/// A new seed each time, printed with the figures. `LANDFALL_SEED` repeats a run, as far as scheduling allows.
///
/// # Panics
///
/// If the variable is not a number.
pub fn seed() -> u64 {
    match std::env::var("LANDFALL_SEED") {
        Ok(seed) => seed.parse().expect("LANDFALL_SEED is a number"),
        Err(_) => rand::random_range(0..1_000_000),
    }
}
