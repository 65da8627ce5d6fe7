//! How messages of one topic reach its stream: as atomic batches where it takes them, else key by key.
//!
//! Sent blindly one after the other, a message could be stored although one before it of the same key was not: the
//! client sends the rest over a new connection when the first is lost, a new leader takes what the old one did not, a
//! small message fits where a large one did not. So either all of them stand or fall together, or each waits for the
//! one before it.

use std::collections::HashMap;

use async_nats::HeaderMap;
use async_nats::header::{NATS_BATCH_COMMIT, NATS_BATCH_COMMIT_FINAL, NATS_BATCH_ID, NATS_BATCH_SEQUENCE};
use async_nats::jetstream::message::PublishMessage;
use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt};
use landfall_core::{ErrorCode, Key, Outcome, Position};

use crate::connection::Connection;
use crate::error::{Denied, Trouble, before_sending, of_acknowledgement};
use crate::topic::Topic;

/// The server takes no larger batch, and holds a batch in memory until it is complete.
const BATCH_MESSAGES: usize = 1_000;
const BATCH_BYTES: usize = 8 * 1024 * 1024;

/// A message that is ready to go.
#[derive(Debug, Clone)]
pub(crate) struct Ready {
    /// Its place in what the caller gave.
    pub(crate) place: usize,
    pub(crate) key: Option<Key>,
    pub(crate) shard: u32,
    pub(crate) headers: HeaderMap,
    pub(crate) payload: Bytes,
}

/// What became of one of them: `None` if it was not sent, because one before it of its key was not accepted.
pub(crate) type Sent = (usize, Option<Result<Position, Trouble>>);

/// Sends all of them; of each key in the order given.
pub(crate) async fn send(connection: &Connection, topic: &Topic, messages: Vec<Ready>, atomic: bool) -> Vec<Sent> {
    if !(atomic && topic.is_atomic && messages.len() > 1) {
        return in_chains(connection, topic, messages).await;
    }
    let mut sent: Vec<Sent> = Vec::with_capacity(messages.len());
    let mut held_back: Vec<Key> = Vec::new();
    let mut rest = messages.into_iter().peekable();
    while rest.peek().is_some() {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while let Some(message) = rest.next_if(|next| {
            batch.is_empty() || (batch.len() < BATCH_MESSAGES && bytes + next.payload.len() <= BATCH_BYTES)
        }) {
            if message.key.as_ref().is_some_and(|key| held_back.contains(key)) {
                sent.push((message.place, None));
                continue;
            }
            bytes += message.payload.len();
            batch.push(message);
        }
        for (message, outcome) in as_batch(connection, topic, batch).await {
            if let Some(key) = message.1.filter(|_| !matches!(outcome, Some(Ok(_)))) {
                held_back.push(key);
            }
            sent.push((message.0, outcome));
        }
    }
    sent
}

type Named = (usize, Option<Key>);

/// As one atomic batch; what the server refuses as a whole, such as one with a copy in it, goes key by key.
async fn as_batch(
    connection: &Connection,
    topic: &Topic,
    batch: Vec<Ready>,
) -> Vec<(Named, Option<Result<Position, Trouble>>)> {
    let named: Vec<Named> = batch.iter().map(|message| (message.place, message.key.clone())).collect();
    let trouble = match atomically(connection, topic, &batch).await {
        Ok(first) => {
            let position =
                |(count, message): (usize, &Ready)| Position { partition: message.shard, offset: first + count as u64 };
            let positions: Vec<_> = batch.iter().enumerate().map(position).collect();
            return named.into_iter().zip(positions).map(|(named, position)| (named, Some(Ok(position)))).collect();
        }
        Err(trouble) => trouble,
    };
    match trouble {
        // Nothing of it was stored, and on its own each gets an answer of its own.
        Trouble::Not(Outcome::Refused(refusal)) if refusal.code != ErrorCode::DENIED && connection.is_connected() => {
            by_name(named, in_chains(connection, topic, batch).await)
        }
        Trouble::BatchRefused(_) => by_name(named, in_chains(connection, topic, batch).await),
        trouble => named.into_iter().map(|named| (named, Some(Err(trouble.clone())))).collect(),
    }
}

fn by_name(named: Vec<Named>, sent: Vec<Sent>) -> Vec<(Named, Option<Result<Position, Trouble>>)> {
    let mut sent: HashMap<usize, _> = sent.into_iter().collect();
    named.into_iter().map(|(place, key)| ((place, key), sent.remove(&place).flatten())).collect()
}

/// The sequence of the first of them in the stream.
async fn atomically(connection: &Connection, topic: &Topic, batch: &[Ready]) -> Result<u64, Trouble> {
    let Some((last, before)) = batch.split_last() else { return Ok(0) };
    let id = uuid::Uuid::now_v7().simple().to_string();
    let headers = |message: &Ready, number: usize| {
        let mut headers = message.headers.clone();
        headers.insert(NATS_BATCH_ID, id.as_str());
        headers.insert(NATS_BATCH_SEQUENCE, number.to_string());
        headers
    };
    let mut watch = connection.denials.watch();
    let send = async {
        for (number, message) in before.iter().enumerate() {
            let (subject, headers) = (topic.subject(message.shard), headers(message, number + 1));
            let sent = connection.client.publish_with_headers(subject, headers, message.payload.clone()).await;
            // Without its end the batch is nothing.
            sent.map_err(|error| Trouble::Not(Outcome::retry_later(ErrorCode::UNAVAILABLE, error.to_string())))?;
        }
        let mut headers = headers(last, batch.len());
        headers.insert(NATS_BATCH_COMMIT, NATS_BATCH_COMMIT_FINAL);
        let publish = PublishMessage::build().headers(headers).payload(last.payload.clone());
        let sent = connection.context.send_publish(topic.subject(last.shard), publish).await;
        sent.map_err(|error| before_sending(&error))
    };
    // While there is no connection the client takes only so much.
    let patience = connection.client.timeout().unwrap_or_default();
    let late = |_| Trouble::Not(connection.not_sent());
    let acknowledged = tokio::time::timeout(patience, send).await.map_err(late)??;
    let acknowledgement = tokio::select! {
        acknowledgement = acknowledged.into_future() => acknowledgement,
        subject = denied_among(&mut watch, topic, batch) => return Err(denied(subject)),
    };
    let last = acknowledgement.map_err(|error| of_acknowledgement(&error))?.sequence;
    Ok((last + 1).saturating_sub(batch.len() as u64))
}

async fn denied_among(watch: &mut crate::connection::Watch, topic: &Topic, batch: &[Ready]) -> String {
    loop {
        let subject = watch.next_denied().await;
        if batch.iter().any(|message| topic.subject(message.shard) == subject) {
            return subject;
        }
    }
}

fn denied(subject: String) -> Trouble {
    Trouble::Not(Outcome::retry_later(ErrorCode::DENIED, Denied(subject).to_string()))
}

/// Key by key: many keys at once, and of each key one at a time.
async fn in_chains(connection: &Connection, topic: &Topic, messages: Vec<Ready>) -> Vec<Sent> {
    let mut chains: Vec<Vec<Ready>> = Vec::with_capacity(messages.len());
    let mut of_key: HashMap<Key, usize> = HashMap::new();
    for message in messages {
        let chain = match &message.key {
            Some(key) => *of_key.entry(key.clone()).or_insert(chains.len()),
            None => chains.len(),
        };
        match chains.get_mut(chain) {
            Some(chain) => chain.push(message),
            None => chains.push(vec![message]),
        }
    }
    let shape: Vec<(u32, Vec<usize>)> =
        chains.iter().map(|chain| (chain[0].shard, chain.iter().map(|message| message.place).collect())).collect();
    let mut is_done = vec![false; chains.len()];
    let mut watch = connection.denials.watch();
    let mut under_way: FuturesUnordered<_> = chains
        .into_iter()
        .enumerate()
        .map(async |(number, chain)| (number, one_by_one(connection, topic, chain).await))
        .collect();
    let mut sent = Vec::new();
    while is_done.contains(&false) {
        tokio::select! {
            Some((number, outcomes)) = under_way.next() => {
                if !std::mem::replace(&mut is_done[number], true) {
                    sent.extend(outcomes);
                }
            }
            subject = watch.next_denied() => {
                // Nothing of these was taken, and no answer will come.
                for (number, (shard, places)) in shape.iter().enumerate() {
                    if topic.subject(*shard) == subject && !std::mem::replace(&mut is_done[number], true) {
                        let first = places.first().map(|place| (*place, Some(Err(denied(subject.clone())))));
                        sent.extend(first.into_iter().chain(places.iter().skip(1).map(|place| (*place, None))));
                    }
                }
            }
        }
    }
    sent
}

/// One key's messages, each after the one before it was acknowledged.
async fn one_by_one(connection: &Connection, topic: &Topic, chain: Vec<Ready>) -> Vec<Sent> {
    let mut sent = Vec::with_capacity(chain.len());
    let mut is_broken = false;
    for message in chain {
        if is_broken {
            sent.push((message.place, None));
            continue;
        }
        let (place, shard) = (message.place, message.shard);
        let publish = PublishMessage::build().headers(message.headers).payload(message.payload);
        let outcome = match connection.context.send_publish(topic.subject(shard), publish).await {
            Err(error) => Err(before_sending(&error)),
            Ok(acknowledgement) => acknowledgement.await.map_err(|error| of_acknowledgement(&error)),
        };
        is_broken = outcome.is_err();
        let placed = outcome.map(|taken| Position { partition: shard, offset: taken.sequence });
        sent.push((place, Some(placed)));
    }
    sent
}
