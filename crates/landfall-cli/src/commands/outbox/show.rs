//! `landfall outbox show`.

use clap::Args;
use landfall::{
    DeadLetter, DeadLetterFilter, DeadLetterId, DeadLetterStatus, DeadLetters, MessageId, OutboxDetail, OutboxFilter,
    OutboxState, OutboxView, RowId, Timestamp,
};
use serde::Serialize;

use crate::error::{Error, Result};
use crate::output::{Output, or_dash, shown};
use crate::payload::Payload;

/// Show a message of the outbox with its headers, its payload and what the relay went through with it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall outbox show 17
  landfall outbox show 0197b1c2-8f3e-7c11-9d2b-6a5f0c3e9d10 --json | jq .payload

A message that was sent is found only as long as it is kept (retention.sent); `landfall topic tail` has it then.")]
pub(super) struct Show {
    /// The id of the message (every row of it is shown), or the number of a row.
    #[arg(value_name = "ID")]
    which: Which,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy)]
enum Which {
    Row(RowId),
    Message(MessageId),
}

impl std::str::FromStr for Which {
    type Err = landfall::Error;

    fn from_str(text: &str) -> landfall::Result<Self> {
        let row = text.parse().map(Which::Row).ok();
        row.or_else(|| text.parse().map(Which::Message).ok()).ok_or_else(|| {
            landfall::Error::invalid(format!("{text:?} is neither a message id nor the number of a row"))
        })
    }
}

/// What `--json` shows: the list's fields, the rest of the message, and the dead letters that it was or is.
#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    detail: &'a OutboxDetail,
    #[serde(flatten)]
    payload: Payload,
    dead_letters: Vec<Parked<'a>>,
}

/// The part of a dead letter that the row does not have.
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

/// More dead letters of one message than this are not looked at on a screen.
const MOST: usize = 100;

impl Show {
    pub(super) async fn run(self, view: &dyn OutboxView, dead_letters: &dyn DeadLetters) -> Result<()> {
        let found = match self.which {
            Which::Message(id) => view.show(id).await?,
            Which::Row(row) => row_of(view, row).await?,
        };
        let Some(first) = found.first() else {
            return Err(Error::not_so(match self.which {
                Which::Message(id) => format!("the outbox has no message {id} (any more)"),
                Which::Row(row) => format!("the outbox has no row {row} (any more)"),
            }));
        };
        let filter = DeadLetterFilter { message_id: Some(first.row.message_id), ..Default::default() };
        let letters = dead_letters.find(&filter, MOST).await?;
        let mut output = Output::new();
        for detail in &found {
            let payload = Payload::of(&detail.payload);
            let dead_letters = of_the_relay(&letters, detail);
            if self.json {
                output.json(&Whole { detail, payload, dead_letters })?;
            } else {
                print(&mut output, detail, &payload, &dead_letters)?;
            }
        }
        output.flush()
    }
}

/// The row of that number, in whatever state it is.
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

fn of_the_relay<'a>(letters: &'a [DeadLetter], detail: &OutboxDetail) -> Vec<Parked<'a>> {
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
    lines.push(("payload", payload.for_people()));
    for (name, value) in lines {
        output.line(&format!("{name:<13} {}", shown(&value)))?;
    }
    Ok(())
}
