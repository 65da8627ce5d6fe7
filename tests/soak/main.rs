//! The soak as a test: a minute of everything on each database, the bugs that it must find, and how fast a relay's
//! work is taken over. `make soak` runs it for ten minutes each.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed"
)]

mod command;
mod minute;
mod planted;
mod takeover;
mod unordered;

use landfall::ErrorKind;
use landfall_system_tests::soak::{Figures, Options, run};
use landfall_testkit::{current_test, not_run};
use tokio::sync::{Mutex, MutexGuard};

/// The program that plays the parts.
const SOAK: &str = env!("CARGO_BIN_EXE_soak");

/// Each of these keeps a machine busy: one after the other.
async fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::const_new(());
    TURN.lock().await
}

/// `None` where the server cannot be had; it has been said then.
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

/// A new one each time, printed with the figures; `LANDFALL_TEST_SEED` repeats a run, as far as processes allow.
fn seed() -> u64 {
    match std::env::var("LANDFALL_TEST_SEED") {
        Ok(seed) => seed.parse().expect("LANDFALL_TEST_SEED is a number"),
        Err(_) => rand::random_range(0..1_000_000),
    }
}
