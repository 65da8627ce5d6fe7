//! Atomic batches: the server stores such a batch whole or not at all, and answers once.

use async_nats::header::{NATS_BATCH_COMMIT, NATS_BATCH_COMMIT_FINAL, NATS_BATCH_ID, NATS_BATCH_SEQUENCE};
use async_nats::jetstream::message::PublishMessage;
use landfall_core::{ErrorCode, Outcome, Position};

use crate::chains::in_chains;
use crate::connection::Watch;
use crate::error::{SendError, denied, from_ack_error, from_unsent};
use crate::send::{Destination, Ready, Sent};
use crate::topic::Topic;
use crate::wire;

/// As one atomic batch; what the server refuses as a whole, such as one with a copy in it, goes key by key.
pub(crate) async fn as_batch(to: Destination<'_>, mut batch: Vec<Ready<'_>>) -> Vec<Sent> {
    let trouble = match atomically(to, &mut batch).await {
        Ok(first) => {
            let placed = |(offset, ready): (u64, Ready<'_>)| {
                (ready.place, Some(Ok(Position { partition: ready.shard, offset })))
            };
            return (first..).zip(batch).map(placed).collect();
        }
        Err(trouble) => trouble,
    };
    // Nothing of it was stored, and on its own each gets an answer of its own.
    let is_worth_a_try = match &trouble {
        SendError::BatchRefused(_) => true,
        SendError::NotStored(Outcome::Refused(refusal)) => {
            refusal.code != ErrorCode::DENIED && to.connection.is_connected()
        }
        _ => false,
    };
    if is_worth_a_try {
        return singly(to, batch).await;
    }
    batch.into_iter().map(|ready| (ready.place, Some(Err(trouble.clone())))).collect()
}

/// Key by key, with headers that know of no batch.
async fn singly(to: Destination<'_>, batch: Vec<Ready<'_>>) -> Vec<Sent> {
    let (mut fit, mut sent) = (Vec::with_capacity(batch.len()), Vec::new());
    for ready in batch {
        match wire::headers(ready.message, to.source) {
            Ok(headers) => fit.push(Ready { headers, ..ready }),
            Err(error) => {
                let refused = Outcome::refuse(ErrorCode::VALIDATION, error.to_string());
                sent.push((ready.place, Some(Err(SendError::NotStored(refused)))));
            }
        }
    }
    sent.extend(in_chains(to, fit).await);
    sent
}

/// The sequence of the first of them in the stream. Their headers are used up.
async fn atomically(to: Destination<'_>, batch: &mut [Ready<'_>]) -> Result<u64, SendError> {
    let Destination { connection, topic, .. } = to;
    let count = batch.len();
    let Some((last, before)) = batch.split_last_mut() else { return Ok(0) };
    let id = uuid::Uuid::now_v7().simple().to_string();
    let numbered = |ready: &mut Ready<'_>, number: usize| {
        let mut headers = std::mem::take(&mut ready.headers);
        headers.insert(NATS_BATCH_ID, id.as_str());
        headers.insert(NATS_BATCH_SEQUENCE, number.to_string());
        headers
    };
    let mut watch = connection.denials.watch();
    let client = connection.client();
    let send = async {
        for (ready, number) in before.iter_mut().zip(1..) {
            let (subject, headers) = (topic.subject(ready.shard), numbered(ready, number));
            let sent = client.publish_with_headers(subject, headers, ready.message.payload.clone()).await;
            // Without its end the batch is nothing.
            sent.map_err(|error| {
                SendError::NotStored(Outcome::retry_later(ErrorCode::UNAVAILABLE, error.to_string()))
            })?;
        }
        let mut headers = numbered(last, count);
        headers.insert(NATS_BATCH_COMMIT, NATS_BATCH_COMMIT_FINAL);
        let publish = PublishMessage::build().headers(headers).payload(last.message.payload.clone());
        let sent = connection.context().send_publish(topic.subject(last.shard), publish).await;
        sent.map_err(|error| from_unsent(&error))
    };
    // While there is no connection the client takes only so much.
    let late = |_| SendError::NotStored(connection.not_sent());
    let acknowledged = tokio::time::timeout(connection.timeout(), send).await.map_err(late)??;
    let acknowledgement = tokio::select! {
        acknowledgement = acknowledged.into_future() => acknowledgement,
        subject = denied_among(&mut watch, topic, batch) => return Err(denied(&subject)),
    };
    let last = acknowledgement.map_err(|error| from_ack_error(&error))?.sequence;
    Ok((last + 1).saturating_sub(count as u64))
}

async fn denied_among(watch: &mut Watch, topic: &Topic, batch: &[Ready<'_>]) -> String {
    loop {
        let subject = watch.next_denied().await;
        if batch.iter().any(|ready| topic.subject(ready.shard).as_str() == subject) {
            return subject;
        }
    }
}
