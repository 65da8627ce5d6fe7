//! `landfall outbox show`.

use clap::Args;
use landfall::{
    DeadLetter, DeadLetterFilter, DeadLetterId, DeadLetterStatus, DeadLetters, MessageId, OutboxDetail, OutboxFilter,
    OutboxState, OutboxView, RowId, Timestamp,
};
use serde::Serialize;

use crate::error::{Error, Result};
use crate::output::{Output, escaped, or_dash};
use crate::payload::Payload;

/// Show a message of the outbox with its headers, payload, attempts and dead letters.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall outbox show 17
  landfall outbox show 0197b1c2-8f3e-7c11-9d2b-6a5f0c3e9d10 --json | jq .payload

A sent message is found only for retention.sent; after that, read it with `landfall topic tail`.")]
pub(super) struct Show {
    /// Id of the message (shows all its rows), or a row.
    #[arg(value_name = "ID")]
    which: Selector,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy)]
enum Selector {
    Row(RowId),
    Message(MessageId),
}

impl std::str::FromStr for Selector {
    type Err = landfall::Error;

    fn from_str(text: &str) -> landfall::Result<Self> {
        let row = text.parse().map(Selector::Row).ok();
        row.or_else(|| text.parse().map(Selector::Message).ok())
            .ok_or_else(|| landfall::Error::invalid(format!("{text:?} is neither a message id nor a row")))
    }
}

/// The object that `--json` prints: the fields of the list, the rest of the message, and its dead letters.
#[derive(Serialize)]
struct Detail<'a> {
    #[serde(flatten)]
    detail: &'a OutboxDetail,
    #[serde(flatten)]
    payload: Payload,
    dead_letters: Vec<Parked<'a>>,
}

/// The fields of a dead letter that the row lacks.
#[derive(Serialize)]
struct Parked<'a> {
    id: DeadLetterId,
    status: DeadLetterStatus,
    error_code: &'a str,
    error: &'a str,
    attempts: u32,
    redrives: u32,
    first_seen: Timestamp,
    last_attempt: Timestamp,
}

/// Upper bound for the dead letters shown of one message.
const MAX_DEAD_LETTERS: usize = 100;

impl Show {
    pub(super) async fn run(self, view: &dyn OutboxView, dead_letters: &dyn DeadLetters) -> Result<()> {
        let found = match self.which {
            Selector::Message(id) => view.show(id).await?,
            Selector::Row(row) => row_of(view, row).await?,
        };
        let Some(first) = found.first() else {
            return Err(Error::failed(match self.which {
                Selector::Message(id) => format!("the outbox has no message {id}; it may have been sent and removed"),
                Selector::Row(row) => format!("the outbox has no row {row}; it may have been sent and removed"),
            }));
        };
        let filter = DeadLetterFilter { message_id: Some(first.row.message_id), ..Default::default() };
        let letters = dead_letters.list_letters(&filter, MAX_DEAD_LETTERS).await?;
        let mut output = Output::new();
        for detail in &found {
            let payload = Payload::from_bytes(&detail.payload);
            let dead_letters = relay_dead_letters(&letters, detail);
            if self.json {
                output.json(&Detail { detail, payload, dead_letters })?;
            } else {
                print(&mut output, detail, &payload, &dead_letters)?;
            }
        }
        output.flush()
    }
}

/// Returns the row in any state.
async fn row_of(view: &dyn OutboxView, row: RowId) -> Result<Vec<OutboxDetail>> {
    for state in [None, Some(OutboxState::Parked), Some(OutboxState::Sent)] {
        let filter = OutboxFilter { state, after: Some(row.saturating_sub(1)), ..Default::default() };
        if let Some(found) = view.list(&filter, 1).await?.into_iter().find(|found| found.row == row) {
            let mut rows = view.show(found.message_id).await?;
            rows.retain(|detail| detail.row.row == row);
            return Ok(rows);
        }
    }
    Ok(Vec::new())
}

fn relay_dead_letters<'a>(letters: &'a [DeadLetter], detail: &OutboxDetail) -> Vec<Parked<'a>> {
    let row = &detail.row;
    letters
        .iter()
        .filter(|letter| letter.group.is_none() && letter.topic == row.topic && letter.key == row.key)
        .map(|letter| Parked {
            id: letter.id,
            status: letter.status,
            error_code: &letter.error_code,
            error: &letter.error,
            attempts: letter.attempts,
            redrives: letter.redrives,
            first_seen: letter.first_seen,
            last_attempt: letter.last_attempt,
        })
        .collect()
}

fn print(output: &mut Output, detail: &OutboxDetail, payload: &Payload, letters: &[Parked<'_>]) -> Result<()> {
    let row = &detail.row;
    let mut lines = vec![
        ("row", row.row.to_string()),
        ("state", row.state.as_str().to_owned()),
        ("message id", row.message_id.to_string()),
        ("topic", row.topic.to_string()),
        ("key", or_dash(row.key.as_ref())),
        ("sequence", or_dash(detail.sequence)),
        ("kind", detail.kind.clone()),
        ("mode", detail.mode.clone()),
        ("created", row.created_at.to_string()),
        ("sent", or_dash(row.sent_at)),
        ("attempts", row.attempts.to_string()),
        ("next attempt", or_dash(row.next_attempt)),
        ("last error", or_dash(row.last_error.as_ref())),
    ];
    for letter in letters {
        let Parked { id, status, error_code, error, attempts, redrives, first_seen, last_attempt } = letter;
        lines.push((
            "dead letter",
            format!(
                "{id} ({}): {error_code}: {error}; {attempts} attempts from {first_seen} to {last_attempt}, redriven \
                 {redrives} times",
                status.as_str()
            ),
        ));
    }
    lines.push(("headers", detail.headers.to_string()));
    lines.push(("payload", payload.to_line()));
    for (name, value) in lines {
        output.line(&format!("{name:<13} {}", escaped(&value)))?;
    }
    Ok(())
}
