//! The tasks of a shard that a member owns: prefetching, acknowledging, and extending acknowledgement deadlines.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::pull::MessagesErrorKind;
use async_nats::jetstream::{AckKind, Message};
use bytes::Bytes;
use futures_util::StreamExt;
use landfall_core::Timestamp;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::api::PullConsumer;
use crate::broker::Nats;
use crate::connection::Connection;
use crate::publisher::publish_ack::NO_ANSWER;
use crate::reader::millis;
use crate::subscriber::shard::{Content, Received, Shard};
use crate::subscriber::unreadable::{self, Unreadable};

/// A pull request that finds nothing expires after this, and the next one begins.
const PULL: Duration = Duration::from_secs(20);
/// The server confirms a waiting pull request this often.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// The time between two attempts.
const BACKOFF: Duration = Duration::from_millis(200);

/// Starts the tasks of `shard`; dropping the result ends them. First searches the next `search` messages for one that
/// cannot be read.
pub(crate) fn start(
    broker: &Nats,
    consumer: PullConsumer,
    shard: Arc<Shard>,
    room: Arc<Semaphore>,
    changed: Arc<Notify>,
    search: usize,
) -> JoinSet<()> {
    let mut work = JoinSet::new();
    let (connection, prefetch) = (broker.connection.clone(), broker.options.prefetch);
    let reading = Reading { connection: connection.clone(), consumer, prefetch, shard: shard.clone(), room, changed };
    work.spawn(reading.run(search));
    work.spawn(acknowledge(connection.clone(), shard.clone()));
    work.spawn(extend_deadlines(connection, shard, broker.options.ack_wait / 3));
    work
}

/// Reads until the shard is lost. Then it notifies `changed`, and the member finds out who owns the shard.
struct Reading {
    connection: Connection,
    consumer: PullConsumer,
    prefetch: usize,
    shard: Arc<Shard>,
    room: Arc<Semaphore>,
    changed: Arc<Notify>,
}

impl Reading {
    async fn run(self, search: usize) {
        match unreadable::find(&self.connection, &self.consumer, self.shard.floor(), search).await {
            Ok(Some(found)) => return self.read_up_to(found).await,
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(%error, shard = self.shard.number, "searching for an unreadable message failed")
            }
        }
        loop {
            self.pull().await;
            self.changed.notify_one();
            tokio::time::sleep(BACKOFF).await;
        }
    }

    /// Pulls messages until the server or the connection ends it.
    async fn pull(&self) {
        let shard = &self.shard;
        self.connection.connected().await;
        let consumer = self.consumer.bind(&self.connection);
        let pulling = consumer.stream().max_messages_per_batch(self.prefetch).expires(PULL).heartbeat(HEARTBEAT);
        let mut messages = match timeout(self.connection.timeout(), pulling.messages()).await {
            Ok(Ok(messages)) => messages,
            Ok(Err(error)) => {
                tracing::warn!(%error, shard = shard.number, "pull request failed, retrying");
                return;
            }
            // The connection was lost at that moment.
            Err(_) => return,
        };
        loop {
            shard.set_waiting(true);
            let next = messages.next().await;
            shard.set_waiting(false);
            match next {
                Some(Ok(message)) => {
                    if let Some(received) = received(message) {
                        self.deliver(received).await;
                    }
                }
                // If the consumer exists after all, the shard is claimed again.
                Some(Err(error)) if error.kind() == MessagesErrorKind::ConsumerDeleted => self.lose().await,
                Some(Err(error)) => {
                    tracing::debug!(%error, shard = shard.number, "pull request ended, retrying");
                    return;
                }
                None => return,
            }
        }
    }

    async fn deliver(&self, received: Received) {
        // The semaphore is never closed.
        let Ok(permit) = self.room.clone().acquire_owned().await else { return };
        if !self.shard.receive(received, permit) {
            // The shard is claimed again at its floor, so that the missing messages are delivered first.
            tracing::info!(shard = self.shard.number, "messages were lost on their way, claiming the shard again");
            self.lose().await;
        }
    }

    /// Delivers the messages before `found` and no more, then `found` itself, and waits until all of them are
    /// finished. Then the shard is claimed again behind `found`, or behind the last message that arrived.
    async fn read_up_to(&self, found: Unreadable) {
        let Unreadable { before, sequence, stored, why, payload, .. } = found;
        let (mut taken, mut last) = (0, self.shard.floor());
        'reading: while taken < before {
            let piece = self.fetch(self.prefetch.min(before - taken)).await;
            if piece.is_empty() {
                break;
            }
            for received in piece {
                // Redelivered because finishing it took long, in place of the next message.
                if received.sequence <= last {
                    break 'reading;
                }
                (taken, last) = (taken + 1, received.sequence);
                self.deliver(received).await;
            }
        }
        if taken == before {
            tracing::warn!(shard = self.shard.number, sequence, why, "unreadable message, delivering it as such");
            let (number, content) = (before as u64 + 1, Content::Unreadable { why, payload });
            self.deliver(Received { sequence, number, stored, reply: None, content }).await;
            last = sequence;
        }
        loop {
            tokio::time::sleep(BACKOFF).await;
            if self.shard.floor() >= last {
                return self.lose().await;
            }
        }
    }

    /// Fetches `count` messages, or those that arrive before an error.
    async fn fetch(&self, count: usize) -> Vec<Received> {
        let mut all = Vec::with_capacity(count);
        let fetching = async {
            self.connection.connected().await;
            let consumer = self.consumer.bind(&self.connection);
            let Ok(mut messages) = consumer.fetch().max_messages(count).expires(PULL).messages().await else {
                return;
            };
            while let Some(Ok(message)) = messages.next().await {
                all.extend(received(message));
            }
        };
        // Missing messages arrive when the shard is claimed again.
        let _ = timeout(PULL, fetching).await;
        all
    }

    /// Gives up the shard, and waits until the member drops this task.
    async fn lose(&self) {
        self.shard.close();
        self.changed.notify_one();
        std::future::pending().await
    }
}

/// A message with its sequences; `None` if it does not come from a stream.
fn received(message: Message) -> Option<Received> {
    let (sequence, number, stored) = {
        let info = message.info().ok()?;
        (info.stream_sequence, info.consumer_sequence, Timestamp::from_millis(millis(&info)))
    };
    let message = message.message;
    let reply = Some(message.reply.clone()?);
    Some(Received { sequence, number, stored, reply, content: Content::Message(message) })
}

/// Acknowledges everything up to the floor, and waits for the server's confirmation. Messages finished meanwhile share
/// the next acknowledgement.
async fn acknowledge(connection: Connection, shard: Arc<Shard>) {
    loop {
        shard.finished.notified().await;
        connection.connected().await;
        let Some(reply) = shard.take_acknowledgement() else { continue };
        let client = connection.client();
        let confirmed = client.request(reply.clone(), Bytes::from(AckKind::Ack));
        let error = match timeout(connection.timeout(), confirmed).await {
            Ok(Ok(_)) => continue,
            Ok(Err(error)) => error.to_string(),
            Err(_) => NO_ANSWER.to_owned(),
        };
        tracing::debug!(%error, shard = shard.number, "acknowledgement not confirmed, retrying");
        tokio::time::sleep(BACKOFF).await;
        shard.acknowledge_again(reply);
    }
}

/// Keeps the server from redelivering messages that are in flight.
async fn extend_deadlines(connection: Connection, shard: Arc<Shard>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        for reply in shard.unfinished() {
            if !connection.is_connected() {
                break;
            }
            let client = connection.client();
            let asked = client.publish(reply, Bytes::from(AckKind::Progress));
            if !matches!(timeout(connection.timeout(), asked).await, Ok(Ok(()))) {
                break;
            }
        }
    }
}
