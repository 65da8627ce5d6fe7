//! SIGTERM and SIGINT: the first starts a graceful shutdown, the second exits at once.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};

/// Returns a token that the first signal cancels.
pub(crate) fn watch() -> Result<CancellationToken> {
    let listen = |kind| signal(kind).map_err(|error| Error::failed(format!("cannot install signal handlers: {error}")));
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    let stop = CancellationToken::new();
    let first = stop.clone();
    tokio::spawn(async move {
        either(&mut terminate, &mut interrupt).await;
        tracing::info!("stopping after work in flight; a second signal exits at once");
        first.cancel();
        either(&mut terminate, &mut interrupt).await;
        tracing::warn!("stopped by a second signal; the next relay publishes work in flight again");
        std::process::exit(1);
    });
    Ok(stop)
}

async fn either(one: &mut Signal, other: &mut Signal) {
    tokio::select! { _ = one.recv() => {}, _ = other.recv() => {} }
}
