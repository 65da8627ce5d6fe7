//! The worker process of the whole-system tests. Its one argument is a [`Setup`] in JSON; it tells its history on
//! stdout and everything else on stderr, stops in good order on SIGTERM, and at once when its parent is gone.

use std::io::Write;
use std::process::ExitCode;

use landfall_system_tests::{Setup, parent, worker};

fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing::Level::WARN).with_ansi(false).init();
    parent::end_with_the_parent();
    match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "the worker gives up: {error}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main(worker_threads = 2)]
async fn work() -> Result<(), Box<dyn std::error::Error>> {
    let argument = std::env::args().nth(1).ok_or("the setup is missing: give it as JSON, as the only argument")?;
    let setup: Setup = serde_json::from_str(&argument)?;
    Ok(worker::run(setup, parent::told_to_stop()?).await?)
}
