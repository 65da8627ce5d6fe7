//! The client that publishes.

use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;
use landfall_core::{Error, ErrorCode, ErrorKind, Message, Outcome, Publisher, Result};
use tokio::io::BufStream;
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use super::wire;

const TIMEOUT: Duration = Duration::from_secs(10);

/// Publishes to a [`PublishServer`](super::PublishServer), usually from another process.
///
/// A request without a response, after a timeout or a lost connection, is [`Outcome::Unknown`]. The next call then
/// reconnects; if that fails, it refuses every message as retriable, because nothing was sent.
#[derive(Debug)]
pub struct RemotePublisher {
    server: SocketAddr,
    timeout: Duration,
    /// `None` during a request. A cancelled or failed request drops its connection, so that a late response is never
    /// taken for the response to a later request.
    connection: Mutex<Option<BufStream<TcpStream>>>,
}

impl RemotePublisher {
    /// Connects, with a timeout of ten seconds for every response.
    pub async fn connect(server: SocketAddr) -> Result<Self> {
        Self::connect_with(server, TIMEOUT).await
    }

    pub async fn connect_with(server: SocketAddr, timeout: Duration) -> Result<Self> {
        let connection = open(server, timeout).await?;
        Ok(Self { server, timeout, connection: Mutex::new(Some(connection)) })
    }

    async fn exchange(
        &self,
        connection: &mut BufStream<TcpStream>,
        batch: &[Message],
    ) -> std::io::Result<Vec<Outcome>> {
        let exchange = async {
            wire::write_request(connection, batch).await?;
            wire::read_response(connection).await
        };
        match tokio::time::timeout(self.timeout, exchange).await {
            Ok(result) => result,
            Err(_) => Err(std::io::ErrorKind::TimedOut.into()),
        }
    }
}

#[async_trait]
impl Publisher for RemotePublisher {
    async fn publish(&self, batch: &[Message]) -> Vec<Outcome> {
        if batch.is_empty() {
            return Vec::new();
        }
        // Held throughout: concurrent batches must not interleave on the connection.
        let mut guard = self.connection.lock().await;
        let mut connection = match guard.take() {
            Some(connection) => connection,
            None => match open(self.server, self.timeout).await {
                Ok(connection) => connection,
                Err(error) => {
                    return vec![Outcome::retry_later(ErrorCode::UNAVAILABLE, error.to_string()); batch.len()];
                }
            },
        };
        match self.exchange(&mut connection, batch).await {
            Ok(outcomes) if outcomes.len() == batch.len() => {
                *guard = Some(connection);
                outcomes
            }
            Ok(outcomes) => {
                let reason = format!("received {} outcomes for {} messages", outcomes.len(), batch.len());
                vec![Outcome::Unknown(reason); batch.len()]
            }
            Err(error) => vec![Outcome::Unknown(format!("no response from {}: {error}", self.server)); batch.len()],
        }
    }
}

async fn open(server: SocketAddr, timeout: Duration) -> Result<BufStream<TcpStream>> {
    let failed = |error| Error::new(ErrorKind::Unavailable, format!("cannot connect to {server}")).with_source(error);
    match tokio::time::timeout(timeout, TcpStream::connect(server)).await {
        Ok(Ok(stream)) => {
            // Small requests wait for their responses, so Nagle's algorithm would only add latency.
            stream.set_nodelay(true).map_err(failed)?;
            Ok(BufStream::new(stream))
        }
        Ok(Err(error)) => Err(failed(error)),
        Err(_) => Err(failed(std::io::ErrorKind::TimedOut.into())),
    }
}
