//! One proxied connection.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;

use super::cut::{ClientStream, CutPoint};
use super::{Shared, Target};

pub(super) async fn connect(number: u64, client: TcpStream, server: Target, shared: &Shared) {
    // Registered before connecting to the server, so that `cut_all` includes this connection.
    let (keep, cut) = oneshot::channel();
    {
        let mut state = shared.state();
        if state.refusing {
            state.counts.refused += 1;
            return;
        }
        state.open.insert(number, keep);
        state.counts.connections += 1;
    }
    // Requests are small and wait for responses, so Nagle's algorithm would only add latency.
    let _ = client.set_nodelay(true);
    let (from_client, to_client) = tokio::io::split(client);
    let connected = match server {
        Target::Tcp(address) => match TcpStream::connect(address).await {
            Ok(server) => {
                let _ = server.set_nodelay(true);
                forward(from_client, to_client, server, cut, shared).await;
                true
            }
            Err(_) => false,
        },
        Target::Unix(path) => match UnixStream::connect(path).await {
            Ok(server) => {
                forward(from_client, to_client, server, cut, shared).await;
                true
            }
            Err(_) => false,
        },
    };
    let mut state = shared.state();
    state.open.remove(&number);
    if !connected {
        state.counts.refused += 1;
    }
}

/// Forwards until one side closes or the connection is cut. Both sides are closed when this returns.
async fn forward(
    from_client: impl AsyncRead + Unpin,
    to_client: impl AsyncWrite + Unpin,
    server: impl AsyncRead + AsyncWrite,
    cut: oneshot::Receiver<()>,
    shared: &Shared,
) {
    let (from_server, to_server) = tokio::io::split(server);
    let (drops_response, is_blackholed) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut requests = pin!(requests(from_client, to_server, &drops_response, &is_blackholed, shared));
    let mut responses = pin!(responses(from_server, to_client, &drops_response, &is_blackholed, shared));
    let mut cut = pin!(cut);
    loop {
        // An error means a closed connection: either way the connection ends.
        tokio::select! {
            signal = &mut cut, if !is_blackholed.load(Ordering::SeqCst) => match signal {
                Ok(()) => is_blackholed.store(true, Ordering::SeqCst),
                Err(_) => return,
            },
            _ = &mut requests => return,
            _ = &mut responses => return,
        }
    }
}

async fn requests(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    drops_response: &AtomicBool,
    is_blackholed: &AtomicBool,
    shared: &Shared,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    let mut sent = ClientStream::default();
    loop {
        let length = from.read(&mut buffer).await?;
        let chunk = &buffer[..length];
        if chunk.is_empty() {
            return Ok(());
        }
        if is_blackholed.load(Ordering::SeqCst) {
            continue;
        }
        let delay = shared.state().delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        match shared.take_cut(&sent, chunk) {
            Some(CutPoint::BeforeForwarding) => return Ok(()),
            // Set before the server receives the request, so that its response is certain to be dropped.
            Some(CutPoint::BeforeResponse) => drops_response.store(true, Ordering::SeqCst),
            None => {}
        }
        sent.add(chunk);
        to.write_all(chunk).await?;
    }
}

async fn responses(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    drops_response: &AtomicBool,
    is_blackholed: &AtomicBool,
    shared: &Shared,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut buffer).await;
        if is_blackholed.load(Ordering::SeqCst) {
            match read {
                Ok(1..) => continue,
                // The client must not notice the end either.
                _ => std::future::pending().await,
            }
        }
        let length = read?;
        if drops_response.load(Ordering::SeqCst) {
            shared.state().counts.cut_before_response += 1;
            return Ok(());
        }
        if length == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..length]).await?;
    }
}

impl Shared {
    /// Removes and returns the first pending cut that `chunk` triggers.
    fn take_cut(&self, sent: &ClientStream, chunk: &[u8]) -> Option<CutPoint> {
        let mut state = self.state();
        let index = sent.matches(chunk, state.armed.iter().map(|(trigger, _)| trigger))?;
        let (_, point) = state.armed.remove(index)?;
        if point == CutPoint::BeforeForwarding {
            state.counts.cut_before_forwarding += 1;
        }
        Some(point)
    }
}
