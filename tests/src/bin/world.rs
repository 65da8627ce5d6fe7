//! The worker process of the whole-system tests. Its one argument is a [`Setup`] in JSON; it tells its history on
//! stdout and everything else on stderr, stops in good order on SIGTERM, and at once when its parent is gone.

use std::io::Write;
use std::os::unix::process::parent_id;
use std::process::ExitCode;
use std::time::Duration;

use landfall_system_tests::{Setup, worker};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing::Level::WARN).with_ansi(false).init();
    end_with_the_parent();
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
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let stopping = stop.clone();
    tokio::spawn(async move {
        terminate.recv().await;
        stopping.cancel();
    });
    Ok(worker::run(setup, stop).await?)
}

/// A test that is killed cannot clean up after itself; whoever has another parent than it began with is an orphan.
fn end_with_the_parent() {
    let parent = parent_id();
    std::thread::spawn(move || {
        while parent_id() == parent {
            std::thread::sleep(Duration::from_millis(200));
        }
        std::process::exit(3);
    });
}
