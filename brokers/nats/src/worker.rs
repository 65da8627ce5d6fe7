//! What goes on for a shard while a member has it: reading ahead, acknowledging, and asking for time.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::pull::MessagesErrorKind;
use async_nats::jetstream::consumer::{Consumer, pull};
use async_nats::jetstream::{AckKind, Message};
use bytes::Bytes;
use futures_util::StreamExt;
use landfall_core::Timestamp;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

use crate::broker::Nats;
use crate::connection::Connection;
use crate::reader::millis;
use crate::shard::{Received, Shard};

/// A pull that found nothing ends after this, and the next one begins.
const PULL: Duration = Duration::from_secs(20);
/// The server shows this often that it has not forgotten a pull.
const SIGN_OF_LIFE: Duration = Duration::from_secs(2);
/// Before something that failed is tried again.
const PAUSE: Duration = Duration::from_millis(200);

/// Starts the work on `shard`; it ends when what is returned is dropped.
pub(crate) fn start(
    broker: &Nats,
    consumer: Consumer<pull::Config>,
    shard: Arc<Shard>,
    room: Arc<Semaphore>,
    look: Arc<Notify>,
) -> JoinSet<()> {
    let mut work = JoinSet::new();
    let connection = broker.connection.clone();
    work.spawn(read(consumer, broker.options.prefetch, shard.clone(), room, look));
    work.spawn(acknowledge(connection.clone(), shard.clone()));
    work.spawn(ask_for_time(connection, shard, broker.options.ack_wait / 3));
    work
}

/// Reads until the shard is lost: `look` is then told, and the membership finds out what became of it.
async fn read(
    consumer: Consumer<pull::Config>,
    prefetch: usize,
    shard: Arc<Shard>,
    room: Arc<Semaphore>,
    look: Arc<Notify>,
) {
    loop {
        let pulling = consumer.stream().max_messages_per_batch(prefetch).expires(PULL).heartbeat(SIGN_OF_LIFE);
        let mut messages = match pulling.messages().await {
            Ok(messages) => messages,
            Err(error) => {
                tracing::warn!(%error, shard = shard.number, "cannot ask for messages; again soon");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        loop {
            shard.set_waiting(true);
            let next = messages.next().await;
            shard.set_waiting(false);
            match next {
                Some(Ok(message)) => {
                    let Some(received) = received(message) else { continue };
                    let Ok(permit) = room.clone().acquire_owned().await else { return };
                    if !shard.receive(received, permit) {
                        // What is missing stands before what came: the shard is taken anew from where it is finished.
                        tracing::info!(shard = shard.number, "messages are missing; the shard is taken anew");
                        shard.close();
                        lost(&look).await;
                    }
                }
                Some(Err(error)) if error.kind() == MessagesErrorKind::ConsumerDeleted => lost(&look).await,
                Some(Err(error)) => {
                    tracing::debug!(%error, shard = shard.number, "the pull ended; again");
                    break;
                }
                None => break,
            }
        }
        look.notify_one();
        tokio::time::sleep(PAUSE).await;
    }
}

/// Nothing more to do here until the membership drops this.
async fn lost(look: &Notify) {
    look.notify_one();
    std::future::pending().await
}

/// A message with its numbers; what has none is no message of a stream.
fn received(message: Message) -> Option<Received> {
    let (sequence, number, stored) = {
        let info = message.info().ok()?;
        (info.stream_sequence, info.consumer_sequence, Timestamp::from_millis(millis(&info)))
    };
    let message = message.message;
    let reply = message.reply.clone()?;
    Some(Received { sequence, number, stored, reply, message })
}

/// Tells the server how far everything is finished, and waits for it to say that it knows. What is finished in the
/// meantime goes out together.
async fn acknowledge(connection: Connection, shard: Arc<Shard>) {
    loop {
        shard.finished.notified().await;
        let Some(reply) = shard.take_acknowledgement() else { continue };
        let told = connection.client.request(reply.clone(), Bytes::from(AckKind::Ack));
        if let Err(error) = told.await {
            tracing::debug!(%error, shard = shard.number, "an acknowledgement was not heard; again");
            tokio::time::sleep(PAUSE).await;
            shard.acknowledge_again(reply);
        }
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
            if connection.client.publish(reply, Bytes::from(AckKind::Progress)).await.is_err() {
                break;
            }
        }
    }
}
