//! The client that consumes.

use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;
use landfall_core::adapter::{Acknowledge, Delivery, Subscriber};
use landfall_core::{Error, ErrorKind, Message, Position, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader, BufWriter, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::wire;

/// A member of the group that a [`DeliverServer`](super::DeliverServer) serves.
#[derive(Debug)]
pub(super) struct RemoteSubscriber {
    deliveries: mpsc::Receiver<(u64, u64, Message)>,
    replies: mpsc::UnboundedSender<(u64, i64)>,
    /// Read and write the connection until this is dropped.
    _tasks: JoinSet<std::io::Result<()>>,
}

impl RemoteSubscriber {
    pub(super) async fn connect(server: SocketAddr) -> Result<Self> {
        let failed =
            |error| Error::new(ErrorKind::Unavailable, format!("cannot connect to {server}")).with_source(error);
        let stream = TcpStream::connect(server).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let (from, to) = tokio::io::split(stream);
        // Read in a separate task, because `next` must be cancellation-safe.
        let (arrived, deliveries) = mpsc::channel(1);
        let (replies, outgoing) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(read_deliveries(from, arrived));
        tasks.spawn(write_replies(to, outgoing));
        Ok(Self { deliveries, replies, _tasks: tasks })
    }
}

#[async_trait]
impl Subscriber for RemoteSubscriber {
    async fn next(&mut self) -> Result<Option<Delivery>> {
        let Some((number, offset, message)) = self.deliveries.recv().await else { return Ok(None) };
        let receipt = Receipt { number, replies: Some(self.replies.clone()) };
        Ok(Some(Delivery::new(Ok(message), Position { partition: 0, offset }, Box::new(receipt))))
    }

    /// Acknowledgements that are not yet written are lost: those messages are redelivered, and the inbox discards them.
    async fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

async fn read_deliveries(from: ReadHalf<TcpStream>, arrived: mpsc::Sender<(u64, u64, Message)>) -> std::io::Result<()> {
    let mut from = BufReader::new(from);
    loop {
        let (number, offset) = (from.read_u64().await?, from.read_u64().await?);
        let batch = wire::read_request(&mut from).await?.unwrap_or_default();
        for message in batch {
            if arrived.send((number, offset, message)).await.is_err() {
                return Ok(());
            }
        }
    }
}

async fn write_replies(
    to: WriteHalf<TcpStream>,
    mut outgoing: mpsc::UnboundedReceiver<(u64, i64)>,
) -> std::io::Result<()> {
    let mut to = BufWriter::new(to);
    while let Some((number, delay_ms)) = outgoing.recv().await {
        to.write_u64(number).await?;
        to.write_i64(delay_ms).await?;
        if outgoing.is_empty() {
            to.flush().await?;
        }
    }
    Ok(())
}

/// Acknowledges one delivery. Dropped without ack or nack, it returns the message for redelivery.
#[derive(Debug)]
struct Receipt {
    number: u64,
    /// `None` once settled.
    replies: Option<mpsc::UnboundedSender<(u64, i64)>>,
}

impl Receipt {
    /// Ignores a closed connection: the server has then returned all deliveries anyway.
    fn reply(&mut self, delay_ms: i64) {
        if let Some(replies) = self.replies.take() {
            let _ = replies.send((self.number, delay_ms));
        }
    }
}

#[async_trait]
impl Acknowledge for Receipt {
    async fn ack(mut self: Box<Self>) -> Result<()> {
        self.reply(-1);
        Ok(())
    }

    async fn nack(mut self: Box<Self>, delay: Duration) -> Result<()> {
        self.reply(i64::try_from(delay.as_millis()).unwrap_or(i64::MAX));
        Ok(())
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        self.reply(0);
    }
}
