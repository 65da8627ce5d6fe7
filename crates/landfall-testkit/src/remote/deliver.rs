//! The end that hands messages out.
//!
//! A delivery is its number (8 bytes), its offset (8 bytes) and a request of one message as in `wire`. An answer is the
//! number and a delay in milliseconds (8 bytes each): not before that it comes again, and a negative one acknowledges.

use std::collections::HashMap;
use std::io::Result as IoResult;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use landfall_core::{Acknowledge, Broker, Error, ErrorKind, GroupName, Result, TopicName};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader, BufWriter, ReadHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, mpsc};
use tokio::task::{JoinHandle, JoinSet};

use super::wire;
use crate::MemoryBroker;

/// Deliveries that a consumer may have in its hands.
const IN_FLIGHT: usize = 64;

/// Serves one group of one topic of a [`MemoryBroker`] over TCP until it is dropped.
///
/// One consumer at a time: the next one is served when the one before is gone and what it had in its hands has been
/// given back, so that nothing is handed out in the wrong order.
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
        let group = Arc::new(Group { broker, topic, group, turn: Mutex::new(()) });
        Ok(Self { address, accepting: tokio::spawn(accept(listener, group)) })
    }

    /// Where a [`RemoteBroker`](super::RemoteBroker) subscribes.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for DeliverServer {
    /// Ends every connection too: they live in a set that the accepting task owns.
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

#[derive(Debug)]
struct Group {
    broker: MemoryBroker,
    topic: TopicName,
    group: GroupName,
    turn: Mutex<()>,
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
                            tracing::debug!(error = %error, "a consumer is gone");
                        }
                    });
                }
                Err(error) => tracing::warn!(error = %error, "a connection was not accepted"),
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

impl Group {
    async fn serve(&self, stream: TcpStream) -> IoResult<()> {
        stream.set_nodelay(true)?;
        let (from, to) = tokio::io::split(stream);
        let _turn = self.turn.lock().await;
        let mut subscriber = self.broker.subscribe(&self.topic, &self.group).await.map_err(std::io::Error::other)?;
        let (told, mut answers) = mpsc::channel(IN_FLIGHT);
        // Aborted when the set is dropped.
        let mut reading = JoinSet::new();
        reading.spawn(read_answers(from, told));
        let mut to = BufWriter::new(to);
        let mut in_flight: HashMap<u64, Box<dyn Acknowledge>> = HashMap::new();
        let mut number = 0;
        loop {
            tokio::select! {
                answer = answers.recv() => {
                    let Some((number, delay_ms)) = answer else { return Ok(()) };
                    let Some(acknowledge) = in_flight.remove(&number) else { continue };
                    let answered = match u64::try_from(delay_ms) {
                        Ok(delay_ms) => acknowledge.nack(Duration::from_millis(delay_ms)).await,
                        Err(_) => acknowledge.ack().await,
                    };
                    answered.map_err(std::io::Error::other)?;
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

async fn read_answers(from: ReadHalf<TcpStream>, told: mpsc::Sender<(u64, i64)>) -> IoResult<()> {
    let mut from = BufReader::new(from);
    loop {
        let answer = (from.read_u64().await?, from.read_i64().await?);
        if told.send(answer).await.is_err() {
            return Ok(());
        }
    }
}
