//! The server that accepts published messages.

use std::net::{Ipv4Addr, SocketAddr};

use landfall_core::{Error, ErrorKind, Publisher, Result};
use tokio::io::BufStream;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use super::wire;
use crate::MemoryBroker;

/// Serves the publishing side of a [`MemoryBroker`] over TCP until it is dropped.
#[derive(Debug)]
pub struct PublishServer {
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl PublishServer {
    /// Serves on a free port of 127.0.0.1.
    pub async fn start(broker: MemoryBroker) -> Result<Self> {
        Self::start_on((Ipv4Addr::LOCALHOST, 0).into(), broker).await
    }

    /// As [`PublishServer::start`], on a given address: a broker that returns at its old address.
    pub async fn start_on(address: SocketAddr, broker: MemoryBroker) -> Result<Self> {
        let failed =
            |error| Error::new(ErrorKind::Unavailable, format!("cannot listen on {address}")).with_source(error);
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { address, accepting: tokio::spawn(accept(listener, broker)) })
    }

    /// The address for a [`RemotePublisher`](super::RemotePublisher).
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for PublishServer {
    /// Closes all connections too: the accept task owns them.
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, broker: MemoryBroker) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(connections.spawn(serve(stream, broker.clone()))),
                Err(error) => tracing::warn!(%error, "failed to accept a connection"),
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Serves one request at a time, so that a publisher's batches are stored in the order sent.
async fn serve(stream: TcpStream, broker: MemoryBroker) {
    let mut stream = BufStream::new(stream);
    loop {
        let batch = match wire::read_request(&mut stream).await {
            Ok(Some(batch)) => batch,
            Ok(None) => return,
            Err(error) => return tracing::warn!(%error, "failed to read a request"),
        };
        let outcomes = broker.publish(&batch).await;
        if let Err(error) = wire::write_response(&mut stream, outcomes).await {
            return tracing::warn!(%error, "failed to write a response");
        }
    }
}
