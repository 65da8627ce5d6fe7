//! Accepts HTTP connections, within bounds: idle clients must not take the descriptors that the log needs.

use std::sync::Arc;
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

#[cfg(feature = "grpc")]
use super::http2;
use super::tls::Tls;
use crate::proxy::Peer;

/// Wait after a failed accept, mostly because no descriptor is left.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(200);

/// What connections may use.
#[derive(Clone)]
pub(super) struct Bounds {
    pub(super) connections: usize,
    /// Time for the head of a request to arrive, also the next one of a connection.
    pub(super) header_timeout: Duration,
    /// Serves HTTPS with it, and else HTTP.
    pub(super) tls: Option<Arc<Tls>>,
    /// Whether requests carry the address of their client, as a [`Peer`].
    pub(super) tells_peer: bool,
}

/// Serves until `stop`, and then finishes the requests in flight.
pub(super) async fn serve(listener: Arc<TcpListener>, router: Router, bounds: Bounds, stop: CancellationToken) {
    let slots = Arc::new(Semaphore::new(bounds.connections));
    let mut connections = JoinSet::new();
    loop {
        let (stream, slot) = tokio::select! {
            accepted = accept(&listener, &slots) => accepted,
            Some(_) = connections.join_next() => continue,
            () = stop.cancelled() => break,
        };
        connections.spawn(converse(stream, slot, router.clone(), bounds.clone(), stop.clone()));
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Waits for a free slot and a connection. A failure passes, so it backs off and retries.
async fn accept(listener: &TcpListener, slots: &Arc<Semaphore>) -> (TcpStream, Option<OwnedSemaphorePermit>) {
    // `None` only if the semaphore is closed, which never happens.
    let slot = slots.clone().acquire_owned().await.ok();
    let mut has_warned = false;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return (stream, slot),
            Err(error) => {
                if !std::mem::replace(&mut has_warned, true) {
                    tracing::warn!(%error, "accepting a connection failed, backing off");
                }
                tokio::time::sleep(ACCEPT_BACKOFF).await;
            }
        }
    }
}

async fn converse(
    stream: TcpStream,
    _slot: Option<OwnedSemaphorePermit>,
    router: Router,
    bounds: Bounds,
    stop: CancellationToken,
) {
    let Bounds { header_timeout, tls, tells_peer, .. } = bounds;
    let router = match stream.peer_addr() {
        Ok(peer) if tells_peer => router.layer(Extension(Peer(peer))),
        _ => router,
    };
    let Some(tls) = tls else { return answer(stream, router, header_timeout, stop).await };
    match tokio::time::timeout(header_timeout, tls.acceptor().accept(stream)).await {
        Ok(Ok(stream)) => answer(stream, router, header_timeout, stop).await,
        // Also a client that speaks plain HTTP, or does not trust the certificate.
        Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => tracing::debug!("TLS handshake timed out"),
    }
}

#[cfg(feature = "grpc")]
async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    router: Router,
    header_timeout: Duration,
    stop: CancellationToken,
) {
    match tokio::time::timeout(header_timeout, http2::detect(stream)).await {
        Ok(Ok((true, stream))) => http2::answer(stream, router, header_timeout, stop).await,
        Ok(Ok((false, stream))) => answer_http1(stream, router, header_timeout, stop).await,
        Ok(Err(error)) => tracing::debug!(%error, "connection ended"),
        Err(_) => tracing::debug!("no request arrived in time"),
    }
}

#[cfg(not(feature = "grpc"))]
use answer_http1 as answer;

async fn answer_http1(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    router: Router,
    header_timeout: Duration,
    stop: CancellationToken,
) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    // The client closed the connection or was too slow; neither concerns an operator.
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
}
