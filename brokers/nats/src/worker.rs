//! What goes on for a shard while a member has it: reading ahead, acknowledging, and asking for time.

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

use crate::answer::NO_ANSWER;
use crate::api::PullConsumer;
use crate::broker::Nats;
use crate::connection::Connection;
use crate::reader::millis;
use crate::shard::{Content, Received, Shard};
use crate::unreadable::{self, Unreadable};

/// A pull that found nothing ends after this, and the next one begins.
const PULL: Duration = Duration::from_secs(20);
/// The server shows this often that it has not forgotten a pull.
const SIGN_OF_LIFE: Duration = Duration::from_secs(2);
/// Before something that failed is tried again.
const PAUSE: Duration = Duration::from_millis(200);

/// Starts the work on `shard`; it ends when what is returned is dropped. Among the next `search` messages one is looked for
/// first that cannot be read.
pub(crate) fn start(
    broker: &Nats,
    consumer: PullConsumer,
    shard: Arc<Shard>,
    room: Arc<Semaphore>,
    look: Arc<Notify>,
    search: usize,
) -> JoinSet<()> {
    let mut work = JoinSet::new();
    let (connection, prefetch) = (broker.connection.clone(), broker.options.prefetch);
    let reading = Reading { connection: connection.clone(), consumer, prefetch, shard: shard.clone(), room, look };
    work.spawn(reading.run(search));
    work.spawn(acknowledge(connection.clone(), shard.clone()));
    work.spawn(ask_for_time(connection, shard, broker.options.ack_wait / 3));
    work
}

/// Reads until the shard is lost: `look` is then told, and the membership finds out what became of it.
struct Reading {
    connection: Connection,
    consumer: PullConsumer,
    prefetch: usize,
    shard: Arc<Shard>,
    room: Arc<Semaphore>,
    look: Arc<Notify>,
}

impl Reading {
    async fn run(self, search: usize) {
        match unreadable::find(&self.connection, &self.consumer, self.shard.floor(), search).await {
            Ok(Some(found)) => return self.read_up_to(found).await,
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, shard = self.shard.number, "why a shard is stuck cannot be found out"),
        }
        loop {
            self.pull().await;
            self.look.notify_one();
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Until the server or the connection ends it.
    async fn pull(&self) {
        let shard = &self.shard;
        self.connection.connected().await;
        let consumer = self.consumer.bind(&self.connection);
        let pulling = consumer.stream().max_messages_per_batch(self.prefetch).expires(PULL).heartbeat(SIGN_OF_LIFE);
        let mut messages = match timeout(self.connection.timeout(), pulling.messages()).await {
            Ok(Ok(messages)) => messages,
            Ok(Err(error)) => {
                tracing::warn!(%error, shard = shard.number, "cannot ask for messages; again soon");
                return;
            }
            // The connection went at that moment.
            Err(_) => return,
        };
        loop {
            shard.set_waiting(true);
            let next = messages.next().await;
            shard.set_waiting(false);
            match next {
                Some(Ok(message)) => {
                    if let Some(received) = received(message) {
                        self.take(received).await;
                    }
                }
                // Or is said to be: if it is there after all, the shard is taken anew.
                Some(Err(error)) if error.kind() == MessagesErrorKind::ConsumerDeleted => self.lose().await,
                Some(Err(error)) => {
                    tracing::debug!(%error, shard = shard.number, "the pull ended; again");
                    return;
                }
                None => return,
            }
        }
    }

    async fn take(&self, received: Received) {
        // Nobody closes the room.
        let Ok(permit) = self.room.clone().acquire_owned().await else { return };
        if !self.shard.receive(received, permit) {
            // What is missing stands before what came: the shard is taken anew from where it is finished.
            tracing::info!(shard = self.shard.number, "messages are missing; the shard is taken anew");
            self.lose().await;
        }
    }

    /// Reads what stands before `found` and not a message more, hands out `found` behind it, and waits until all of that
    /// is finished: then the shard is taken anew behind it. If not everything came, it is taken anew behind what did.
    async fn read_up_to(&self, found: Unreadable) {
        let Unreadable { before, sequence, stored, why, .. } = found;
        let (mut taken, mut last) = (0, self.shard.floor());
        'reading: while taken < before {
            let piece = self.fetch(self.prefetch.min(before - taken)).await;
            if piece.is_empty() {
                break;
            }
            for received in piece {
                // Sent once more, because finishing it took long: what was to come in its place was not sent.
                if received.sequence <= last {
                    break 'reading;
                }
                (taken, last) = (taken + 1, received.sequence);
                self.take(received).await;
            }
        }
        if taken == before {
            tracing::warn!(
                shard = self.shard.number,
                sequence,
                why,
                "a message cannot be read; it is handed out as such"
            );
            let (number, content) = (before as u64 + 1, Content::Unreadable(why));
            self.take(Received { sequence, number, stored, reply: None, content }).await;
            last = sequence;
        }
        loop {
            tokio::time::sleep(PAUSE).await;
            if self.shard.floor() >= last {
                return self.lose().await;
            }
        }
    }

    /// So many messages, or those that came before something went wrong.
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
        // What is missing comes when the shard is taken anew.
        let _ = timeout(PULL, fetching).await;
        all
    }

    /// Nothing more to do here until the membership drops this.
    async fn lose(&self) {
        self.shard.close();
        self.look.notify_one();
        std::future::pending().await
    }
}

/// A message with its numbers; what has none is no message of a stream.
fn received(message: Message) -> Option<Received> {
    let (sequence, number, stored) = {
        let info = message.info().ok()?;
        (info.stream_sequence, info.consumer_sequence, Timestamp::from_millis(millis(&info)))
    };
    let message = message.message;
    let reply = Some(message.reply.clone()?);
    Some(Received { sequence, number, stored, reply, content: Content::Message(message) })
}

/// Tells the server how far everything is finished, and waits for it to say that it knows. What is finished in the
/// meantime goes out together.
async fn acknowledge(connection: Connection, shard: Arc<Shard>) {
    loop {
        shard.finished.notified().await;
        connection.connected().await;
        let Some(reply) = shard.take_acknowledgement() else { continue };
        let client = connection.client();
        let told = client.request(reply.clone(), Bytes::from(AckKind::Ack));
        let error = match timeout(connection.timeout(), told).await {
            Ok(Ok(_)) => continue,
            Ok(Err(error)) => error.to_string(),
            Err(_) => NO_ANSWER.to_owned(),
        };
        tracing::debug!(%error, shard = shard.number, "an acknowledgement was not heard; again");
        tokio::time::sleep(PAUSE).await;
        shard.acknowledge_again(reply);
    }
}

/// Keeps the server from sending again what is still being worked on.
async fn ask_for_time(connection: Connection, shard: Arc<Shard>, every: Duration) {
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
