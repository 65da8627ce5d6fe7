//! One connection, from a client to the server and back.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;

use super::cut::{Moment, Sent};
use super::{Shared, Target};

pub(super) async fn connect(number: u64, client: TcpStream, server: Target, shared: &Shared) {
    // Registered before the server is asked, so that a cut of all leaves out nobody who has come.
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
    // Requests are small and wait for their answers; nothing is gained by holding them back.
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

/// Forwards until one side closes or the connection is cut; everything is closed when this returns.
async fn forward(
    from_client: impl AsyncRead + Unpin,
    to_client: impl AsyncWrite + Unpin,
    server: impl AsyncRead + AsyncWrite,
    cut: oneshot::Receiver<()>,
    shared: &Shared,
) {
    let (from_server, to_server) = tokio::io::split(server);
    let (is_silent, is_lost) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut requests = pin!(requests(from_client, to_server, &is_silent, &is_lost, shared));
    let mut answers = pin!(answers(from_server, to_client, &is_silent, &is_lost, shared));
    let mut cut = pin!(cut);
    loop {
        // An error is a closed connection, and both are the end.
        tokio::select! {
            told = &mut cut, if !is_lost.load(Ordering::SeqCst) => match told {
                Ok(()) => is_lost.store(true, Ordering::SeqCst),
                Err(_) => return,
            },
            _ = &mut requests => return,
            _ = &mut answers => return,
        }
    }
}

async fn requests(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    is_silent: &AtomicBool,
    is_lost: &AtomicBool,
    shared: &Shared,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    let mut sent = Sent::default();
    loop {
        let length = from.read(&mut buffer).await?;
        let piece = &buffer[..length];
        if piece.is_empty() {
            return Ok(());
        }
        if is_lost.load(Ordering::SeqCst) {
            continue;
        }
        let delay = shared.state().delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        match shared.meet(&sent, piece) {
            Some(Moment::BeforeForwarding) => return Ok(()),
            // Said before the server can know of it: it is the answer to this that is not forwarded.
            Some(Moment::BeforeTheAnswer) => is_silent.store(true, Ordering::SeqCst),
            None => {}
        }
        sent.add(piece);
        to.write_all(piece).await?;
    }
}

async fn answers(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    is_silent: &AtomicBool,
    is_lost: &AtomicBool,
    shared: &Shared,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut buffer).await;
        if is_lost.load(Ordering::SeqCst) {
            match read {
                Ok(1..) => continue,
                // The client does not hear of that either.
                _ => std::future::pending().await,
            }
        }
        let length = read?;
        if is_silent.load(Ordering::SeqCst) {
            shared.state().counts.cut_before_the_answer += 1;
            return Ok(());
        }
        if length == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..length]).await?;
    }
}

impl Shared {
    /// Takes the first armed cut that `piece` meets: nobody else meets it any more.
    fn meet(&self, sent: &Sent, piece: &[u8]) -> Option<Moment> {
        let mut state = self.state();
        let place = sent.meets(piece, state.armed.iter().map(|(trigger, _)| trigger))?;
        let (_, moment) = state.armed.remove(place)?;
        if moment == Moment::BeforeForwarding {
            state.counts.cut_before_forwarding += 1;
        }
        Some(moment)
    }
}
