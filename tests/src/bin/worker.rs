//! The worker process of the whole-system tests. Its only argument is a [`Setup`] as JSON. It prints its history to
//! stdout and its logs to stderr, shuts down gracefully on SIGTERM, and exits at once when its parent is gone.

use std::io::Write;
use std::process::ExitCode;

use landfall_system_tests::{Setup, parent, worker};

fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing::Level::WARN).with_ansi(false).init();
    parent::exit_with_parent();
    match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "the worker failed: {error}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main(worker_threads = 2)]
async fn work() -> Result<(), Box<dyn std::error::Error>> {
    let argument = std::env::args().nth(1).ok_or("the setup is missing: give it as JSON, as the only argument")?;
    let setup: Setup = serde_json::from_str(&argument)?;
    Ok(worker::run(setup, parent::stop_on_sigterm()?).await?)
}
