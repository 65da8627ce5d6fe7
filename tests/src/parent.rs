//! A worker process exits on SIGTERM, and when its parent is gone.

use std::os::unix::process::parent_id;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Exits when the parent is gone: a killed test cannot stop its workers. A changed parent id means that the process is
/// an orphan.
pub fn exit_with_parent() {
    let parent = parent_id();
    std::thread::spawn(move || {
        while parent_id() == parent {
            std::thread::sleep(Duration::from_millis(200));
        }
        std::process::exit(3);
    });
}

/// Returns a token that SIGTERM cancels.
pub fn stop_on_sigterm() -> std::io::Result<CancellationToken> {
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let stopping = stop.clone();
    tokio::spawn(async move {
        terminate.recv().await;
        stopping.cancel();
    });
    Ok(stop)
}
