//! `landfall topic tail`.

use std::time::Duration;

use clap::Args;
use landfall::{Headers, Key, Kind, Message, MessageId, Position, StartAt, StoredMessage, Timestamp, TopicName};
use serde::Serialize;

use super::start::parse_start;
use crate::config::Config;
use crate::error::Result;
use crate::output::{Output, escaped, or_dash};
use crate::payload::Payload;
use crate::stores::broker;

/// Print the messages of a topic; works beside a running daemon and does not affect consumer groups.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall topic tail orders
  landfall topic tail orders --from end --follow
  landfall topic tail orders --from 2026-11-15T08:00:00Z
  landfall topic tail orders --json | jq 'select(.key == \"customer-42\") | .payload'")]
pub(super) struct Tail {
    topic: TopicName,
    /// First message: beginning, end, an offset in every partition, or a time (RFC 3339, UTC), which is the first
    /// message appended at or after it.
    #[arg(long, default_value = "beginning", value_parser = parse_start)]
    from: StartAt,
    /// Wait for new messages at the end, until Ctrl-C.
    #[arg(long)]
    follow: bool,
    /// Print one JSON object per line: id, topic, partition, offset, key, sequence, kind, time, headers, payload (or
    /// payload_base64 if it is not text).
    #[arg(long)]
    json: bool,
}

/// Messages read at a time.
const BATCH: usize = 500;
/// The interval between two reads at the end of the topic.
const PAUSE: Duration = Duration::from_millis(100);

impl Tail {
    pub(super) async fn run(self, config: &Config) -> Result<()> {
        let broker = broker::open_to_read(config).await?;
        let mut reader = broker.read(&self.topic, self.from).await?;
        let mut output = Output::new();
        loop {
            let batch = reader.read(BATCH).await?;
            for stored in &batch {
                self.print(&mut output, stored)?;
            }
            output.flush()?;
            if !batch.is_empty() {
                continue;
            }
            if !self.follow {
                return Ok(());
            }
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                _ = tokio::signal::ctrl_c() => return Ok(()),
            }
        }
    }

    fn print(&self, output: &mut Output, stored: &StoredMessage) -> Result<()> {
        let Position { partition, offset } = stored.position;
        match (&stored.message, self.json) {
            (Ok(message), true) => output.json(&Line::new(message, stored.position)),
            (Err(error), true) => {
                output.json(&Unreadable { topic: &self.topic, partition, offset, error: error.to_string() })
            }
            (Ok(message), false) => output.line(&format!(
                "{partition}/{offset}  {}  {}  {}  {}",
                message.time,
                escaped(&or_dash(message.key.as_ref())),
                escaped(message.kind.as_str()),
                Payload::from_bytes(&message.payload).to_line()
            )),
            (Err(error), false) => {
                output.line(&format!("{partition}/{offset}  cannot be read: {}", escaped(&error.to_string())))
            }
        }
    }
}

/// The object that `--json` prints for a message: part of the command's contract.
#[derive(Serialize)]
struct Line<'a> {
    id: MessageId,
    topic: &'a TopicName,
    partition: u32,
    offset: u64,
    key: Option<&'a Key>,
    sequence: Option<i64>,
    kind: &'a Kind,
    time: Timestamp,
    headers: &'a Headers,
    #[serde(flatten)]
    payload: Payload,
}

impl<'a> Line<'a> {
    fn new(message: &'a Message, Position { partition, offset }: Position) -> Self {
        Self {
            id: message.id,
            topic: &message.topic,
            partition,
            offset,
            key: message.key.as_ref(),
            sequence: message.sequence,
            kind: &message.kind,
            time: message.time,
            headers: &message.headers,
            payload: Payload::from_bytes(&message.payload),
        }
    }
}

/// The object that `--json` prints for a record that is no valid message; it is never skipped silently.
#[derive(Serialize)]
struct Unreadable<'a> {
    topic: &'a TopicName,
    partition: u32,
    offset: u64,
    error: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_line_has_the_documented_fields_in_order() {
        let mut message = Message::new(TopicName::new("orders").unwrap(), r#"{"total": 10}"#);
        message.key = Some(Key::new("k").unwrap());
        message.headers.insert("tenant", "a").unwrap();
        let id = message.id;
        message.time = Timestamp::from_millis(1_794_732_000_123);
        let line = serde_json::to_string(&Line::new(&message, Position { partition: 2, offset: 9 })).unwrap();
        assert_eq!(
            line,
            [
                format!(r#"{{"id":"{id}","topic":"orders","partition":2,"offset":9,"key":"k","sequence":null,"#),
                r#""kind":"message","time":"2026-11-15T08:40:00.123Z","headers":{"tenant":"a"},"#.to_owned(),
                r#""payload":{"total": 10}}"#.to_owned(),
            ]
            .concat()
        );
    }
}
