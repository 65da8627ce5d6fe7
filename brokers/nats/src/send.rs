//! How messages of one topic reach its stream.
//!
//! Sent blindly one after the other, a message could be stored although one before it of the same key was not: the
//! client sends the rest over a new connection when the first is lost, a new leader takes what the old one did not, a
//! small message fits where a large one did not. So messages of one key either stand or fall together, in an atomic batch,
//! or each waits for the answer to the one before it.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use async_nats::HeaderMap;
use async_nats::jetstream::message::PublishMessage;
use landfall_core::{Key, Message, Position};
use tokio::time::timeout;

use crate::atomic::as_batch;
use crate::chains::in_chains;
use crate::connection::Connection;
use crate::error::{SendError, denied, from_ack_error, from_unsent};
use crate::pace::Way;
use crate::topic::Topic;

/// The server takes no larger batch, and holds a batch back until it is complete.
const BATCH_MESSAGES: usize = 1_000;
const BATCH_BYTES: usize = 8 * 1024 * 1024;

/// So many messages of a key may wait for each other: each costs a round trip, during which others are under way.
const FEW: usize = 3;

/// A message that is ready to go.
#[derive(Debug)]
pub(crate) struct Ready<'a> {
    /// Its place in what the caller gave.
    pub(crate) place: usize,
    pub(crate) message: &'a Message,
    pub(crate) shard: u32,
    pub(crate) headers: HeaderMap,
}

/// What became of one message: `None` if it was not sent, because one before it of its key was not accepted.
pub(crate) type Fate = Option<Result<Position, SendError>>;

/// The fate of the message at this place.
pub(crate) type Sent = (usize, Fate);

/// Where messages go, and what they say about where they come from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Destination<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) topic: &'a Topic,
    pub(crate) source: &'a str,
    /// Whether atomic batches are wanted, where the topic takes them.
    pub(crate) atomic: bool,
}

/// Sends all of them; of each key in the order given.
pub(crate) async fn send(to: Destination<'_>, mut messages: Vec<Ready<'_>>) -> Vec<Sent> {
    if messages.len() == 1
        && let Some(ready) = messages.pop()
    {
        return vec![(ready.place, Some(one(to, ready).await))];
    }
    if !(to.atomic && to.topic.is_atomic) {
        return in_chains(to, messages).await;
    }
    let (began, count, mut way) = (Instant::now(), messages.len(), to.topic.pace.choose());
    let (few, many) = match way {
        Way::Singly => apart(messages),
        Way::Batched => (Vec::new(), messages),
    };
    if few.is_empty() {
        way = Way::Batched;
    }
    let (mut sent, more) = tokio::join!(in_chains(to, few), in_batches(to, many));
    sent.extend(more);
    if sent.iter().all(|(_, fate)| matches!(fate, Some(Ok(_)))) {
        to.topic.pace.learn(way, count, began.elapsed());
    }
    sent
}

/// The only message of a call, by the client's own request.
async fn one(to: Destination<'_>, ready: Ready<'_>) -> Result<Position, SendError> {
    let watch = to.connection.denials.watch();
    let (subject, partition) = (to.topic.subject(ready.shard), ready.shard);
    let publish = PublishMessage::build().headers(ready.headers).payload(ready.message.payload.clone());
    // While there is no connection the client takes only so much.
    let late = |_| SendError::NotStored(to.connection.not_sent());
    let sent = timeout(to.connection.timeout(), to.connection.context().send_publish(subject.clone(), publish)).await;
    let acknowledged = sent.map_err(late)?.map_err(|error| from_unsent(&error))?;
    let acknowledgement = tokio::select! {
        acknowledgement = acknowledged.into_future() => acknowledgement,
        () = watch.denied(&subject) => return Err(denied(&subject)),
    };
    let taken = acknowledgement.map_err(|error| from_ack_error(&error))?;
    Ok(Position { partition, offset: taken.sequence })
}

/// Those of keys with few messages, and those of keys with many.
fn apart(messages: Vec<Ready<'_>>) -> (Vec<Ready<'_>>, Vec<Ready<'_>>) {
    let mut of_key: HashMap<&Key, usize> = HashMap::with_capacity(messages.len());
    for key in messages.iter().filter_map(|ready| ready.message.key.as_ref()) {
        *of_key.entry(key).or_default() += 1;
    }
    let is_few = |count: Option<&usize>| count.is_none_or(|count| *count <= FEW);
    messages.into_iter().partition(|ready| is_few(ready.message.key.as_ref().and_then(|key| of_key.get(key))))
}

/// One atomic batch after the other.
async fn in_batches<'a>(to: Destination<'_>, messages: Vec<Ready<'a>>) -> Vec<Sent> {
    let mut sent: Vec<Sent> = Vec::with_capacity(messages.len());
    let mut held_back: HashSet<&'a Key> = HashSet::new();
    let mut rest = messages.into_iter().peekable();
    while rest.peek().is_some() {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while let Some(ready) = rest.next_if(|next| {
            batch.is_empty() || (batch.len() < BATCH_MESSAGES && bytes + next.message.payload.len() <= BATCH_BYTES)
        }) {
            if ready.message.key.as_ref().is_some_and(|key| held_back.contains(key)) {
                sent.push((ready.place, None));
                continue;
            }
            bytes += ready.message.payload.len();
            batch.push(ready);
        }
        let keys: HashMap<usize, &Key> =
            batch.iter().filter_map(|ready| Some((ready.place, ready.message.key.as_ref()?))).collect();
        for (place, fate) in as_batch(to, batch).await {
            if !matches!(fate, Some(Ok(_))) {
                held_back.extend(keys.get(&place));
            }
            sent.push((place, fate));
        }
    }
    sent
}

#[cfg(test)]
mod tests {
    use landfall_core::TopicName;

    use super::*;

    #[test]
    fn keys_with_few_messages_and_keys_with_many_go_different_ways() {
        let message = |key: Option<&str>| {
            let message = Message::new(TopicName::new("orders").unwrap(), Vec::new());
            key.map_or(message.clone(), |key| message.with_key(Key::new(key).unwrap()))
        };
        let messages: Vec<_> =
            [Some("a"), None, Some("b"), Some("a"), Some("a"), Some("b"), Some("a")].map(message).into();
        let ready = |(place, message)| Ready { place, message, shard: 0, headers: HeaderMap::new() };
        let (few, many) = apart(messages.iter().enumerate().map(ready).collect());
        let places = |messages: Vec<Ready<'_>>| messages.iter().map(|ready| ready.place).collect::<Vec<_>>();
        assert_eq!((places(few), places(many)), (vec![1, 2, 5], vec![0, 3, 4, 6]));
    }
}
