use std::time::Duration;

use landfall_core::adapter::{Hold, Origin, Parking, StoredError};
use landfall_core::{
    DeadLetter, DeadLetterId, DeadLetterStats, DeadLetterStatus, Error, ErrorCode, ErrorKind, GroupName, Limits,
    Message, OpenLetters, Result, TopicName,
};

/// A dead letter of a consumer group, about to be inserted.
#[derive(Debug)]
pub struct NewDeadLetter<'a> {
    pub group: &'a GroupName,
    pub message: &'a Message,
    pub origin: Origin,
    pub status: DeadLetterStatus,
    pub code: &'a ErrorCode,
    pub error: &'a str,
    pub attempts: u32,
    pub hold: Hold,
    pub retry_after: Option<Duration>,
    pub stored: StoredError,
}

impl<'a> NewDeadLetter<'a> {
    /// A message that waits because an earlier one of its key is a dead letter.
    pub fn waiting(group: &'a GroupName, message: &'a Message, origin: Origin) -> Self {
        Self {
            group,
            message,
            origin,
            status: DeadLetterStatus::Waiting,
            code: &ErrorCode::PREDECESSOR,
            error: "an earlier message of the same key is not done",
            attempts: 0,
            hold: Hold::Key,
            retry_after: None,
            stored: StoredError::default(),
        }
    }

    /// A message that failed: parked, or delayed if it is to be retried.
    pub fn failed(group: &'a GroupName, message: &'a Message, origin: Origin, parking: Parking<'a>) -> Self {
        let Parking { attempts, failure, hold, again } = parking;
        let (code, error) = (&failure.code, failure.error.as_str());
        let status = status_after(again);
        let stored = StoredError::from_failure(failure);
        Self { group, message, origin, status, code, error, attempts, hold, retry_after: again, stored }
    }
}

/// The status of a failed dead letter: delayed if it is retried after a while, parked otherwise.
pub fn status_after(retry: Option<Duration>) -> DeadLetterStatus {
    if retry.is_some() { DeadLetterStatus::Delayed } else { DeadLetterStatus::Parked }
}

/// What the audit trail calls a dead letter's change to `status`.
pub fn audit_action(status: DeadLetterStatus) -> &'static str {
    if status == DeadLetterStatus::Delayed { "delay" } else { "park" }
}

/// The audit trail's actor for changes that a consumer group makes.
pub fn consumer_actor(group: &str) -> String {
    format!("consumer:{group}")
}

/// Builds the statistics from the number of dead letters per status.
pub fn dead_letter_stats(counts: Vec<(String, i64)>) -> Result<DeadLetterStats> {
    let mut stats = DeadLetterStats::default();
    for (status, count) in counts {
        set_count(&mut stats, &status, count)?;
    }
    Ok(stats)
}

fn set_count(stats: &mut DeadLetterStats, status: &str, count: i64) -> Result<()> {
    let count = count.unsigned_abs();
    match status.parse()? {
        DeadLetterStatus::Parked => stats.parked = count,
        DeadLetterStatus::Delayed => stats.delayed = count,
        DeadLetterStatus::Waiting => stats.waiting = count,
        DeadLetterStatus::Redriving => stats.redriving = count,
        DeadLetterStatus::Done => stats.done = count,
        DeadLetterStatus::Discarded => stats.discarded = count,
        DeadLetterStatus::Ignored => stats.ignored = count,
    }
    Ok(())
}

/// Builds the result of `open_letters` from rows of topic, group (empty for the relay), status and count, sorted by
/// topic and group.
pub fn open_letters(rows: Vec<(String, String, String, i64)>) -> Result<Vec<OpenLetters>> {
    let mut letters: Vec<OpenLetters> = Vec::new();
    for (topic, group, status, count) in rows {
        // A topic that a foreign writer made invalid is why its message was parked; it has no name to show.
        let Ok(topic) = TopicName::new(topic) else { continue };
        let group = if group.is_empty() { None } else { Some(GroupName::new(group)?) };
        if letters.last().is_none_or(|last| (&last.topic, &last.group) != (&topic, &group)) {
            letters.push(OpenLetters { topic, group, stats: DeadLetterStats::default() });
        }
        if let Some(last) = letters.last_mut() {
            set_count(&mut last.stats, &status, count)?;
        }
    }
    Ok(letters)
}

/// Refuses an edited payload over the limit.
pub fn check_edited_payload(limits: &Limits, payload: &[u8]) -> Result<()> {
    if payload.len() <= limits.payload_bytes {
        return Ok(());
    }
    let (bytes, limit) = (payload.len(), limits.payload_bytes);
    Err(Error::invalid(format!("the payload has {bytes} bytes; the limit is {limit}")))
}

/// The error of an edit that changed nothing; `found` is the letter as it is.
pub fn edit_refused(id: DeadLetterId, found: Option<&DeadLetter>) -> Error {
    match found {
        None => Error::new(ErrorKind::NotFound, format!("there is no dead letter {id}")),
        Some(letter) => {
            let status = letter.status.as_str();
            let text = format!("dead letter {id} is {status}; only a parked one can be edited");
            Error::new(ErrorKind::Conflict, text)
        }
    }
}
