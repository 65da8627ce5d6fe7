//! `landfall dlq show`.

use clap::Args;
use landfall::{DeadLetter, DeadLetterFilter, DeadLetterId, DeadLetters, MessageId};
use serde::Serialize;

use crate::error::{Error, Result};
use crate::output::{Output, escaped, or_dash};
use crate::payload::Payload;

/// Show a dead letter with its headers and payload.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall dlq show 17
  landfall dlq show 0197b1c2-8f3e-7c11-9d2b-6a5f0c3e9d10 --json | jq .payload")]
pub(super) struct Show {
    /// Id of the dead letter, or id of the message (shows one dead letter per group in which it failed).
    #[arg(value_name = "ID")]
    which: Selector,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone)]
enum Selector {
    DeadLetter(DeadLetterId),
    Message(MessageId),
}

impl std::str::FromStr for Selector {
    type Err = landfall::Error;

    fn from_str(text: &str) -> landfall::Result<Self> {
        let number = text.parse().map(Selector::DeadLetter).ok();
        number.or_else(|| text.parse().map(Selector::Message).ok()).ok_or_else(|| {
            landfall::Error::invalid(format!("{text:?} is neither the id of a dead letter nor a message id"))
        })
    }
}

/// The object that `--json` prints: the fields of the list and the payload.
#[derive(Serialize)]
pub(super) struct Detail<'a> {
    #[serde(flatten)]
    letter: &'a DeadLetter,
    #[serde(flatten)]
    payload: Payload,
    /// Only of an edited message.
    #[serde(skip_serializing_if = "Option::is_none")]
    original: Option<Payload>,
}

impl<'a> Detail<'a> {
    pub(super) fn new(letter: &'a DeadLetter) -> Self {
        let original = letter.original_payload.as_deref().map(Payload::from_bytes);
        Self { letter, payload: Payload::from_bytes(&letter.payload), original }
    }
}

/// Upper bound for the output; a message has at most one dead letter per group.
const MAX_DEAD_LETTERS: usize = 100;

impl Show {
    pub(super) async fn run(self, dead_letters: &dyn DeadLetters) -> Result<()> {
        let (filter, name) = match self.which {
            Selector::DeadLetter(id) => (DeadLetterFilter { id: Some(id), ..Default::default() }, id.to_string()),
            Selector::Message(id) => (DeadLetterFilter { message_id: Some(id), ..Default::default() }, id.to_string()),
        };
        let found = dead_letters.find(&filter, MAX_DEAD_LETTERS).await?;
        if found.is_empty() {
            return Err(Error::failed(format!("there is no dead letter {name}; `landfall dlq list` shows all")));
        }
        let mut output = Output::new();
        for letter in &found {
            let detail = Detail::new(letter);
            if self.json {
                output.json(&detail)?;
                continue;
            }
            print(&mut output, letter, &detail.payload)?;
            if let Some(original) = detail.original {
                output.line(&format!("{:<13} {}", "original", escaped(&original.to_line())))?;
            }
        }
        output.flush()
    }
}

fn print(output: &mut Output, letter: &DeadLetter, payload: &Payload) -> Result<()> {
    let origin = match (letter.original_partition, letter.original_offset) {
        (Some(partition), Some(offset)) => format!("partition {partition}, offset {offset}"),
        _ => "-".to_owned(),
    };
    let group = letter.group.as_ref().map_or_else(|| "- (failed in the relay)".into(), ToString::to_string);
    for (name, value) in [
        ("id", letter.id.to_string()),
        ("status", letter.status.as_str().to_owned()),
        ("message id", letter.message_id.to_string()),
        ("group", group),
        ("topic", letter.topic.to_string()),
        ("key", or_dash(letter.key.as_ref())),
        ("sequence", or_dash(letter.sequence)),
        ("kind", letter.kind.clone()),
        ("error code", letter.error_code.clone()),
        ("error", letter.error.clone()),
        ("attempts", letter.attempts.to_string()),
        ("redrives", letter.redrives.to_string()),
        ("origin", origin),
        ("first seen", letter.first_seen.to_string()),
        ("last attempt", letter.last_attempt.to_string()),
        ("headers", letter.headers.to_string()),
        ("payload", payload.to_line()),
    ] {
        output.line(&format!("{name:<13} {}", escaped(&value)))?;
    }
    Ok(())
}
