//! SIGTERM and SIGINT: the first asks the daemon to stop, the second ends it at once.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};

/// A token that the first signal cancels.
pub(crate) fn watch() -> Result<CancellationToken> {
    let listen = |kind| signal(kind).map_err(|error| Error::not_so(format!("signals cannot be received: {error}")));
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    let stop = CancellationToken::new();
    let first = stop.clone();
    tokio::spawn(async move {
        either(&mut terminate, &mut interrupt).await;
        tracing::info!("stopping: finishing what is in flight; a second signal ends it at once");
        first.cancel();
        either(&mut terminate, &mut interrupt).await;
        tracing::warn!("stopped by a second signal; what was in flight is read again by the next relay");
        std::process::exit(1);
    });
    Ok(stop)
}

async fn either(one: &mut Signal, other: &mut Signal) {
    tokio::select! { _ = one.recv() => {}, _ = other.recv() => {} }
}
