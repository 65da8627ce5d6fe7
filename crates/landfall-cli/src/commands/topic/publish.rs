//! `landfall topic publish`.

use std::io::{IsTerminal, Read};

use clap::Args;
use landfall::{Headers, Key, Kind, Message, MessageId, Outcome, Position, TopicName};
use serde::Serialize;

use crate::config::Config;
use crate::error::{Error, Result};
use crate::output::Output;
use crate::stores::broker;

/// Put one message straight into the broker, past the outbox: for trying things out.
///
/// Services send through the outbox instead. While a daemon holds the embedded log, use its POST /v1/messages.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall topic publish orders '{\"total\": 10}' --key customer-42 --kind OrderPlaced
  landfall topic publish orders --header tenant=eu < order.json")]
pub(super) struct Publish {
    topic: TopicName,
    /// The payload; from stdin if it is not given, or -.
    payload: Option<String>,
    /// The ordering key.
    #[arg(long)]
    key: Option<Key>,
    /// What it is, such as OrderPlaced.
    #[arg(long, value_parser = |text: &str| Kind::new(text))]
    kind: Option<Kind>,
    /// A header, NAME=VALUE; may be given several times.
    #[arg(long = "header", value_name = "NAME=VALUE")]
    headers: Vec<String>,
    /// One JSON object: id, topic, partition, offset.
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
                    output.line(&format!("{id} stands in {topic}, partition {partition}, offset {offset}"))?;
                }
                output.flush()
            }
            Some(Outcome::Refused(refusal)) => {
                Err(Error::not_so(format!("the broker refused it ({}): {}", refusal.code, refusal.reason)))
            }
            Some(Outcome::Unknown(reason)) => Err(Error::not_so(format!(
                "the broker gave no answer, so that message {} may or may not be there: {reason}",
                message.id
            ))),
            None => Err(Error::not_so("the broker's adapter answered for no message")),
        }
    }

    /// Everything is checked before the broker is touched.
    fn message(&self, config: &Config) -> Result<Message> {
        let mut headers = Headers::default();
        for header in &self.headers {
            let (name, value) = header
                .split_once('=')
                .ok_or_else(|| Error::wrong_use(format!("--header {header:?} is not NAME=VALUE")))?;
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

/// One byte more than the limit is enough to see that it is too much.
fn read_stdin(limit: usize) -> Result<Vec<u8>> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return Err(Error::wrong_use("give the payload as an argument, or pipe it in"));
    }
    let mut payload = Vec::new();
    stdin
        .lock()
        .take(limit as u64 + 1)
        .read_to_end(&mut payload)
        .map_err(|error| Error::not_so(format!("the payload cannot be read from stdin: {error}")))?;
    Ok(payload)
}

/// A log has one writer. When that is a daemon, sending through it is what was wanted anyway.
fn point_to_the_daemon(error: Error, config: &Config) -> Error {
    match error {
        Error::InUse(sentence) => Error::InUse(format!(
            "{sentence}; if that is a running daemon, send through it: POST http://{}/v1/messages",
            config.http.listen
        )),
        error => error,
    }
}
