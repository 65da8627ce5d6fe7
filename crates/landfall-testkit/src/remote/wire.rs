//! The frames between client and server: a length (4 bytes, big-endian) and JSON of that length. After the JSON of a
//! request follow the payloads of its messages; the JSON contains their lengths.

use std::io::{Error, ErrorKind, Result};

use bytes::Bytes;
use landfall_core::{ErrorCode, Headers, Key, Kind, Message, MessageId, Mode, Outcome, Position, Timestamp, TopicName};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Far more than any test sends; a longer frame is corrupt.
const FRAME_LIMIT: u32 = 64 * 1024 * 1024;

#[derive(Serialize, Deserialize)]
struct Envelope {
    id: MessageId,
    topic: TopicName,
    key: Option<Key>,
    sequence: Option<i64>,
    kind: Kind,
    mode: Mode,
    headers: Headers,
    time: Timestamp,
    payload_bytes: u32,
}

#[derive(Serialize, Deserialize)]
enum OutcomeFrame {
    Accepted { partition: u32, offset: u64 },
    Refused { code: String, reason: String, retriable: bool },
    Unknown { reason: String },
}

pub(super) async fn write_request(stream: &mut (impl AsyncWrite + Unpin), batch: &[Message]) -> Result<()> {
    let mut envelopes = Vec::with_capacity(batch.len());
    for message in batch {
        envelopes.push(Envelope {
            id: message.id,
            topic: message.topic.clone(),
            key: message.key.clone(),
            sequence: message.sequence,
            kind: message.kind.clone(),
            mode: message.mode,
            headers: message.headers.clone(),
            time: message.time,
            payload_bytes: u32::try_from(message.payload.len()).map_err(invalid)?,
        });
    }
    write_json(stream, &envelopes).await?;
    for message in batch {
        stream.write_all(&message.payload).await?;
    }
    stream.flush().await
}

/// Returns the next batch; `None` if the peer has closed the connection.
pub(super) async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Result<Option<Vec<Message>>> {
    let envelopes: Vec<Envelope> = match read_json(stream).await {
        Ok(envelopes) => envelopes,
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut batch = Vec::with_capacity(envelopes.len());
    for envelope in envelopes {
        let payload = Bytes::from(read_bytes(stream, envelope.payload_bytes).await?);
        batch.push(Message {
            id: envelope.id,
            topic: envelope.topic,
            key: envelope.key,
            sequence: envelope.sequence,
            kind: envelope.kind,
            mode: envelope.mode,
            headers: envelope.headers,
            payload,
            time: envelope.time,
        });
    }
    Ok(Some(batch))
}

pub(super) async fn write_response(stream: &mut (impl AsyncWrite + Unpin), outcomes: Vec<Outcome>) -> Result<()> {
    let frames = outcomes.into_iter().map(|outcome| match outcome {
        Outcome::Accepted(Position { partition, offset }) => OutcomeFrame::Accepted { partition, offset },
        Outcome::Refused(refusal) => OutcomeFrame::Refused {
            code: refusal.code.to_string(),
            reason: refusal.reason,
            retriable: refusal.retriable,
        },
        Outcome::Unknown(reason) => OutcomeFrame::Unknown { reason },
    });
    write_json(stream, &frames.collect::<Vec<_>>()).await?;
    stream.flush().await
}

pub(super) async fn read_response(stream: &mut (impl AsyncRead + Unpin)) -> Result<Vec<Outcome>> {
    let frames: Vec<OutcomeFrame> = read_json(stream).await?;
    let outcomes = frames.into_iter().map(|frame| match frame {
        OutcomeFrame::Accepted { partition, offset } => Outcome::Accepted(Position { partition, offset }),
        OutcomeFrame::Refused { code, reason, retriable: true } => Outcome::retry_later(ErrorCode::new(&code), reason),
        OutcomeFrame::Refused { code, reason, retriable: false } => Outcome::refuse(ErrorCode::new(&code), reason),
        OutcomeFrame::Unknown { reason } => Outcome::Unknown(reason),
    });
    Ok(outcomes.collect())
}

async fn write_json(stream: &mut (impl AsyncWrite + Unpin), value: &impl Serialize) -> Result<()> {
    let json = serde_json::to_vec(value).map_err(invalid)?;
    stream.write_u32(u32::try_from(json.len()).map_err(invalid)?).await?;
    stream.write_all(&json).await
}

async fn read_json<T: DeserializeOwned>(stream: &mut (impl AsyncRead + Unpin)) -> Result<T> {
    let length = stream.read_u32().await?;
    serde_json::from_slice(&read_bytes(stream, length).await?).map_err(invalid)
}

async fn read_bytes(stream: &mut (impl AsyncRead + Unpin), length: u32) -> Result<Vec<u8>> {
    if length > FRAME_LIMIT {
        return Err(Error::new(
            ErrorKind::InvalidData,
            format!("a frame of {length} bytes exceeds the limit of {FRAME_LIMIT}"),
        ));
    }
    let mut buffer = vec![0; length as usize];
    stream.read_exact(&mut buffer).await?;
    Ok(buffer)
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::new(ErrorKind::InvalidData, error)
}
