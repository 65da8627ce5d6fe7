//! HTTP/2 connections, which gRPC needs. Within the bounds of HTTP/1: a connection without a request is closed.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use bytes::{Buf, Bytes};
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio_util::sync::CancellationToken;

/// The first bytes of every HTTP/2 connection.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Requests of one connection at a time.
const STREAMS: u32 = 64;
/// All headers of one request together, as decoded.
const HEADER_BYTES: u32 = 16 * 1024;

/// Reads the first bytes, and returns whether they begin HTTP/2. The returned stream begins with them.
pub(super) async fn detect<S: AsyncRead + Unpin>(mut stream: S) -> io::Result<(bool, Rewound<S>)> {
    let (mut first, mut length) = ([0; PREFACE.len()], 0);
    while length < PREFACE.len() && PREFACE.starts_with(&first[..length]) {
        let count = stream.read(&mut first[length..]).await?;
        if count == 0 {
            break;
        }
        length += count;
    }
    let is_http2 = first == *PREFACE;
    Ok((is_http2, Rewound { first: Bytes::copy_from_slice(&first[..length]), stream }))
}

/// Answers requests until the client closes the connection, has none for `idle`, or `stop`.
pub(super) async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    router: Router,
    idle: Duration,
    stop: CancellationToken,
) {
    let requests = Arc::new(Requests::default());
    let counting = requests.clone();
    let router = router.layer(from_fn(move |request: Request, next: Next| {
        let running = Running::new(counting.clone());
        async move {
            let response = next.run(request).await;
            drop(running);
            response
        }
    }));
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = std::pin::pin!(connection);
    let mut check = tokio::time::interval(idle);
    check.reset();
    let mut is_closing = false;
    loop {
        tokio::select! {
            ended = &mut connection => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "connection ended");
                }
                return;
            }
            () = stop.cancelled(), if !is_closing => {}
            _ = check.tick() => {
                if !requests.were_none() {
                    continue;
                }
                // The client was asked to close it, or does not read what it is sent.
                if is_closing {
                    return tracing::debug!("idle connection closed");
                }
            }
        }
        is_closing = true;
        connection.as_mut().graceful_shutdown();
    }
}

/// The requests of one connection.
#[derive(Default)]
struct Requests {
    running: AtomicUsize,
    /// Whether one has begun since the last check.
    began: AtomicBool,
}

impl Requests {
    /// Returns whether there was no request since the last call.
    fn were_none(&self) -> bool {
        !self.began.swap(false, Ordering::Relaxed) && self.running.load(Ordering::Relaxed) == 0
    }
}

/// Counts a request while it runs, also if it is cancelled.
struct Running(Arc<Requests>);

impl Running {
    fn new(requests: Arc<Requests>) -> Self {
        requests.running.fetch_add(1, Ordering::Relaxed);
        requests.began.store(true, Ordering::Relaxed);
        Self(requests)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A stream whose first bytes were read before, and are read again.
pub(super) struct Rewound<S> {
    first: Bytes,
    stream: S,
}

impl<S: AsyncRead + Unpin> AsyncRead for Rewound<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.first.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let count = self.first.len().min(buffer.remaining());
        buffer.put_slice(&self.first[..count]);
        self.first.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Rewound<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn only_the_whole_preface_is_http2_and_no_byte_is_lost() {
        let preface = [&PREFACE[..], b"rest"].concat();
        for (bytes, expected) in [
            (&preface[..], true),
            (&PREFACE[..23], false),
            (b"", false),
            (b"P", false),
            (b"POST / HTTP/1.1\r\n\r\n", false),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r ", false),
        ] {
            for step in [1, 7, 100] {
                let (stream, mut client) = tokio::io::duplex(step);
                let sent = bytes.to_vec();
                tokio::spawn(async move { client.write_all(&sent).await });
                let (is_http2, mut rewound) = detect(stream).await.unwrap();
                let mut read = Vec::new();
                rewound.read_to_end(&mut read).await.unwrap();
                assert_eq!((is_http2, &read[..]), (expected, bytes), "in steps of {step}");
            }
        }
    }
}
