//! What a worker process owes to the one that started it: to end when it is told to, and when that one is gone.

use std::os::unix::process::parent_id;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A test that is killed cannot clean up after itself; whoever has another parent than it began with is an orphan.
pub fn end_with_the_parent() {
    let parent = parent_id();
    std::thread::spawn(move || {
        while parent_id() == parent {
            std::thread::sleep(Duration::from_millis(200));
        }
        std::process::exit(3);
    });
}

/// Cancelled on SIGTERM.
pub fn told_to_stop() -> std::io::Result<CancellationToken> {
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let stopping = stop.clone();
    tokio::spawn(async move {
        terminate.recv().await;
        stopping.cancel();
    });
    Ok(stop)
}
