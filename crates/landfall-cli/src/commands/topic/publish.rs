//! `landfall topic publish`.

use std::io::{IsTerminal, Read};

use clap::Args;
use landfall::{Headers, Key, Kind, Message, MessageId, Outcome, Position, TopicName};
use serde::Serialize;

use crate::config::Config;
use crate::error::{Error, Result};
use crate::output::Output;
use crate::stores::broker;

/// Publish one message directly to the broker, bypassing the outbox; for experiments.
///
/// Services publish through the outbox. While a daemon holds the embedded log, use its POST /v1/messages.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall topic publish orders '{\"total\": 10}' --key customer-42 --kind OrderPlaced
  landfall topic publish orders --header tenant=eu < order.json")]
pub(super) struct Publish {
    topic: TopicName,
    /// Payload; read from stdin if omitted or -.
    payload: Option<String>,
    /// Ordering key.
    #[arg(long)]
    key: Option<Key>,
    /// Kind of the message (CloudEvents type), such as OrderPlaced.
    #[arg(long, value_parser = |text: &str| Kind::new(text))]
    kind: Option<Kind>,
    /// Header as NAME=VALUE; may be repeated.
    #[arg(long = "header", value_name = "NAME=VALUE")]
    headers: Vec<String>,
    /// Print one JSON object: id, topic, partition, offset.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Published<'a> {
    id: MessageId,
    topic: &'a TopicName,
    partition: u32,
    offset: u64,
}

impl Publish {
    pub(super) async fn run(self, config: &Config) -> Result<()> {
        let message = self.message(config)?;
        let broker = broker::open(config).await.map_err(|error| point_to_the_daemon(error, config))?;
        let outcome = broker.publisher().publish(std::slice::from_ref(&message)).await.into_iter().next();
        match outcome {
            Some(Outcome::Accepted(Position { partition, offset })) => {
                let published = Published { id: message.id, topic: &message.topic, partition, offset };
                let mut output = Output::new();
                if self.json {
                    output.json(&published)?;
                } else {
                    let (id, topic) = (published.id, published.topic);
                    output.line(&format!("published {id} to {topic}, partition {partition}, offset {offset}"))?;
                }
                output.flush()
            }
            Some(Outcome::Refused(refusal)) => {
                Err(Error::failed(format!("the broker refused the message ({}): {}", refusal.code, refusal.reason)))
            }
            Some(Outcome::Unknown(reason)) => Err(Error::failed(format!(
                "the outcome is unknown: the broker may or may not have stored message {}: {reason}",
                message.id
            ))),
            None => Err(Error::failed("the broker's adapter returned no outcome; this is a bug")),
        }
    }

    /// Builds and validates the message before the broker is opened.
    fn message(&self, config: &Config) -> Result<Message> {
        let mut headers = Headers::default();
        for header in &self.headers {
            let (name, value) =
                header.split_once('=').ok_or_else(|| Error::usage(format!("--header {header:?} is not NAME=VALUE")))?;
            headers.insert(name, value)?;
        }
        let payload = match self.payload.as_deref() {
            Some(payload) if payload != "-" => payload.as_bytes().to_vec(),
            _ => read_stdin(config.limits.payload_bytes)?,
        };
        let mut message = Message::new(self.topic.clone(), payload).with_headers(headers);
        message.key = self.key.clone();
        message.kind = self.kind.clone().unwrap_or_default();
        config.limits.check(&message)?;
        Ok(message)
    }
}

/// Reads at most one byte more than the limit, enough to detect an oversized payload.
fn read_stdin(limit: usize) -> Result<Vec<u8>> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return Err(Error::usage("no payload; give it as an argument or on stdin"));
    }
    let mut payload = Vec::new();
    stdin
        .lock()
        .take(limit as u64 + 1)
        .read_to_end(&mut payload)
        .map_err(|error| Error::failed(format!("cannot read the payload from stdin: {error}")))?;
    Ok(payload)
}

/// Adds advice to the error of a locked log: its only writer is usually a daemon, which accepts messages over HTTP.
fn point_to_the_daemon(error: Error, config: &Config) -> Error {
    match error {
        Error::InUse(text) => Error::InUse(format!(
            "{text}; if that is a running daemon, send through it: POST http://{}/v1/messages",
            config.http.listen
        )),
        error => error,
    }
}
