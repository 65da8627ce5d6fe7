//! The server that delivers messages.
//!
//! A delivery frame is its number (8 bytes), its offset (8 bytes) and a request of one message as in `wire`. A reply is
//! the number and a delay in milliseconds (8 bytes each): a nack with that delay, or an ack if it is negative.

use std::collections::HashMap;
use std::io::Result as IoResult;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use landfall_core::adapter::Acknowledge;
use landfall_core::{Broker, Error, ErrorKind, GroupName, Result, TopicName};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader, BufWriter, ReadHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, mpsc};
use tokio::task::{JoinHandle, JoinSet};

use super::wire;
use crate::MemoryBroker;

/// The limit of deliveries in flight to a consumer.
const IN_FLIGHT: usize = 64;

/// Serves one group of one topic of a [`MemoryBroker`] over TCP until it is dropped.
///
/// It serves one consumer at a time. The next one is served once the previous one is gone and its deliveries in flight
/// were returned, so that delivery order is kept.
#[derive(Debug)]
pub struct DeliverServer {
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl DeliverServer {
    /// Serves on a free port of 127.0.0.1.
    pub async fn start(broker: MemoryBroker, topic: TopicName, group: GroupName) -> Result<Self> {
        let failed = |error| Error::new(ErrorKind::Unavailable, "cannot listen on 127.0.0.1").with_source(error);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let group = Arc::new(Group { broker, topic, group, active_consumer: Mutex::new(()) });
        Ok(Self { address, accepting: tokio::spawn(accept(listener, group)) })
    }

    /// The address for a [`RemoteBroker`](super::RemoteBroker).
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for DeliverServer {
    /// Closes all connections too: the accept task owns them.
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

#[derive(Debug)]
struct Group {
    broker: MemoryBroker,
    topic: TopicName,
    group: GroupName,
    /// Held while a consumer is served.
    active_consumer: Mutex<()>,
}

async fn accept(listener: TcpListener, group: Arc<Group>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let group = group.clone();
                    connections.spawn(async move {
                        if let Err(error) = group.serve(stream).await {
                            tracing::debug!(%error, "consumer disconnected");
                        }
                    });
                }
                Err(error) => tracing::warn!(%error, "failed to accept a connection"),
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

impl Group {
    async fn serve(&self, stream: TcpStream) -> IoResult<()> {
        stream.set_nodelay(true)?;
        let (from, to) = tokio::io::split(stream);
        let _active = self.active_consumer.lock().await;
        let mut subscriber = self.broker.subscribe(&self.topic, &self.group).await.map_err(std::io::Error::other)?;
        let (sender, mut replies) = mpsc::channel(IN_FLIGHT);
        // Aborted when the set is dropped.
        let mut reading = JoinSet::new();
        reading.spawn(read_replies(from, sender));
        let mut to = BufWriter::new(to);
        let mut in_flight: HashMap<u64, Box<dyn Acknowledge>> = HashMap::new();
        let mut number = 0;
        loop {
            tokio::select! {
                reply = replies.recv() => {
                    let Some((number, delay_ms)) = reply else { return Ok(()) };
                    let Some(acknowledge) = in_flight.remove(&number) else { continue };
                    let settled = match u64::try_from(delay_ms) {
                        Ok(delay_ms) => acknowledge.nack(Duration::from_millis(delay_ms)).await,
                        Err(_) => acknowledge.ack().await,
                    };
                    settled.map_err(std::io::Error::other)?;
                }
                delivery = subscriber.next(), if in_flight.len() < IN_FLIGHT => {
                    let Some(delivery) = delivery.map_err(std::io::Error::other)? else { return Ok(()) };
                    number += 1;
                    let (message, position, acknowledge) = delivery.into_parts();
                    in_flight.insert(number, acknowledge);
                    let message = message.map_err(std::io::Error::other)?;
                    to.write_u64(number).await?;
                    to.write_u64(position.offset).await?;
                    wire::write_request(&mut to, &[message]).await?;
                }
            }
        }
    }
}

async fn read_replies(from: ReadHalf<TcpStream>, sender: mpsc::Sender<(u64, i64)>) -> IoResult<()> {
    let mut from = BufReader::new(from);
    loop {
        let reply = (from.read_u64().await?, from.read_i64().await?);
        if sender.send(reply).await.is_err() {
            return Ok(());
        }
    }
}
