//! The process of the crash tests of half messages. Its only argument is a [`HalfSetup`] as JSON.

use std::io::Write;
use std::process::ExitCode;

use landfall_system_tests::half_worker::{self, HalfSetup};
use landfall_system_tests::parent;

fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing::Level::WARN).with_ansi(false).init();
    parent::exit_with_parent();
    match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "the half worker failed: {error}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main(worker_threads = 2)]
async fn work() -> Result<(), Box<dyn std::error::Error>> {
    let argument = std::env::args().nth(1).ok_or("the setup is missing: give it as JSON, as the only argument")?;
    let setup: HalfSetup = serde_json::from_str(&argument)?;
    Ok(half_worker::run(setup, parent::stop_on_sigterm()?).await?)
}
