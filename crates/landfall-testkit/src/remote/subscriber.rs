//! The end that consumes.

use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;
use landfall_core::{Acknowledge, Delivery, Error, ErrorKind, Message, Position, Result, Subscriber};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader, BufWriter, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::wire;

/// A member of the group that a [`DeliverServer`](super::DeliverServer) serves.
#[derive(Debug)]
pub(super) struct RemoteSubscriber {
    deliveries: mpsc::Receiver<(u64, u64, Message)>,
    answers: mpsc::UnboundedSender<(u64, i64)>,
    /// Reading and writing, until this is dropped.
    _tasks: JoinSet<std::io::Result<()>>,
}

impl RemoteSubscriber {
    pub(super) async fn connect(server: SocketAddr) -> Result<Self> {
        let failed =
            |error| Error::new(ErrorKind::Unavailable, format!("cannot connect to {server}")).with_source(error);
        let stream = TcpStream::connect(server).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let (from, to) = tokio::io::split(stream);
        // Read in a task of its own, because dropping `next` must lose nothing.
        let (arrived, deliveries) = mpsc::channel(1);
        let (answers, told) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(read_deliveries(from, arrived));
        tasks.spawn(write_answers(to, told));
        Ok(Self { deliveries, answers, _tasks: tasks })
    }
}

#[async_trait]
impl Subscriber for RemoteSubscriber {
    async fn next(&mut self) -> Result<Option<Delivery>> {
        let Some((number, offset, message)) = self.deliveries.recv().await else { return Ok(None) };
        let receipt = Receipt { number, answers: Some(self.answers.clone()) };
        Ok(Some(Delivery::new(Ok(message), Position { partition: 0, offset }, Box::new(receipt))))
    }

    /// What was acknowledged and is not told yet comes again: the inbox knows it.
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

async fn write_answers(to: WriteHalf<TcpStream>, mut told: mpsc::UnboundedReceiver<(u64, i64)>) -> std::io::Result<()> {
    let mut to = BufWriter::new(to);
    while let Some((number, delay_ms)) = told.recv().await {
        to.write_u64(number).await?;
        to.write_i64(delay_ms).await?;
        if told.is_empty() {
            to.flush().await?;
        }
    }
    Ok(())
}

/// Stands behind a delivery; dropped unsettled, it gives the message back.
#[derive(Debug)]
struct Receipt {
    number: u64,
    /// Taken when it is settled.
    answers: Option<mpsc::UnboundedSender<(u64, i64)>>,
}

impl Receipt {
    /// Whoever is not there to hear it has given everything back anyway.
    fn answer(&mut self, delay_ms: i64) {
        if let Some(answers) = self.answers.take() {
            let _ = answers.send((self.number, delay_ms));
        }
    }
}

#[async_trait]
impl Acknowledge for Receipt {
    async fn ack(mut self: Box<Self>) -> Result<()> {
        self.answer(-1);
        Ok(())
    }

    async fn nack(mut self: Box<Self>, delay: Duration) -> Result<()> {
        self.answer(i64::try_from(delay.as_millis()).unwrap_or(i64::MAX));
        Ok(())
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        self.answer(0);
    }
}
