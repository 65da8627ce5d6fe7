//! The end that publishes.

use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;
use landfall_core::{Error, ErrorCode, ErrorKind, Message, Outcome, Publisher, Result};
use tokio::io::BufStream;
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use super::wire;

const PATIENCE: Duration = Duration::from_secs(10);

/// Publishes to a [`PublishServer`](super::PublishServer), usually from another process.
///
/// What was sent and not answered, for lack of time or of a connection, is [`Outcome::Unknown`]. After that the next
/// call connects again; if it cannot, everything is refused for now, because nothing was sent.
#[derive(Debug)]
pub struct RemotePublisher {
    server: SocketAddr,
    patience: Duration,
    /// Taken out while a request is under way: one that is cancelled or fails takes its connection with it, so that
    /// a late answer is never read as the answer to a later request.
    connection: Mutex<Option<BufStream<TcpStream>>>,
}

impl RemotePublisher {
    /// Connects, and waits at most ten seconds for every answer.
    pub async fn connect(server: SocketAddr) -> Result<Self> {
        Self::connect_with(server, PATIENCE).await
    }

    pub async fn connect_with(server: SocketAddr, patience: Duration) -> Result<Self> {
        let connection = open(server, patience).await?;
        Ok(Self { server, patience, connection: Mutex::new(Some(connection)) })
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
        match tokio::time::timeout(self.patience, exchange).await {
            Ok(answered) => answered,
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
        // Held throughout: batches that are published at once must not mix on the connection.
        let mut guard = self.connection.lock().await;
        let mut connection = match guard.take() {
            Some(connection) => connection,
            None => match open(self.server, self.patience).await {
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
                let reason = format!("{} outcomes came for {} messages", outcomes.len(), batch.len());
                vec![Outcome::Unknown(reason); batch.len()]
            }
            Err(error) => vec![Outcome::Unknown(format!("no answer from {}: {error}", self.server)); batch.len()],
        }
    }
}

async fn open(server: SocketAddr, patience: Duration) -> Result<BufStream<TcpStream>> {
    let failed = |error| Error::new(ErrorKind::Unavailable, format!("cannot connect to {server}")).with_source(error);
    match tokio::time::timeout(patience, TcpStream::connect(server)).await {
        Ok(Ok(stream)) => {
            // Small requests wait for their answers; nothing is gained by holding them back.
            stream.set_nodelay(true).map_err(failed)?;
            Ok(BufStream::new(stream))
        }
        Ok(Err(error)) => Err(failed(error)),
        Err(_) => Err(failed(std::io::ErrorKind::TimedOut.into())),
    }
}
