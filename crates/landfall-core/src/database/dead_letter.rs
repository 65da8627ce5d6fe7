use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde::Serialize;

use crate::fingerprint::error_fingerprint;
use crate::{Error, Failure, GroupName, GroupState, Key, MessageId, PayloadPath, Result, Timestamp, TopicName};

/// The number of a dead letter; grows within one database.
pub type DeadLetterId = i64;

/// A message that failed for the last time, or waits behind one that did.
#[derive(Debug, Clone, Serialize)]
pub struct DeadLetter {
    pub id: DeadLetterId,
    pub message_id: MessageId,
    /// The consumer group it failed in; `None` if the relay could not publish it.
    pub group: Option<GroupName>,
    pub topic: TopicName,
    pub key: Option<Key>,
    pub sequence: Option<i64>,
    pub kind: String,
    pub status: DeadLetterStatus,
    pub error_code: String,
    pub error: String,
    pub attempts: u32,
    pub redrives: u32,
    pub original_partition: Option<u32>,
    pub original_offset: Option<u64>,
    pub first_seen: Timestamp,
    pub last_attempt: Timestamp,
    /// For a delayed letter: the time of its next attempt.
    pub retry_at: Option<Timestamp>,
    /// Groups letters with the same cause.
    pub fingerprint: String,
    /// The errors behind `error`, from the nearest to the first cause.
    pub causes: Vec<String>,
    /// The sender's trace, from the header `traceparent`.
    pub trace_id: Option<String>,
    /// The sender's headers, as the JSON object that was stored.
    pub headers: serde_json::Value,
    #[serde(skip)]
    pub payload: Bytes,
    /// The payload before it was edited for the first time; `None` if it never was.
    #[serde(skip)]
    pub original_payload: Option<Bytes>,
}

/// ```text
///             redrive                handled
///   parked ───────────▶ redriving ───────────▶ done
///      ▲                    │
///      └────────────────────┘ failed again
///   parked ──(discard)──▶ discarded
///   parked ──(ignore)──▶ ignored ──(release)──▶ parked
///   waiting ──(predecessor done)──▶ handled ▶ done, or failed ▶ delayed or parked
///   delayed ──(due)──▶ handled ▶ done, or failed ▶ delayed; parked after the last attempt
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DeadLetterStatus {
    /// Failed; waits for a person to redrive it.
    Parked,
    /// Failed, and retried automatically when due.
    Delayed,
    /// Did not fail; waits because an earlier message of its topic and key is open.
    Waiting,
    /// A person redrove it; it is handled next.
    Redriving,
    /// Its effect happened, or (relay) it is back in the outbox. Final.
    Done,
    /// A person decided that it never takes effect. Final.
    Discarded,
    /// Parked, and no redrive touches it until a person releases it. Its key waits.
    Ignored,
}

impl DeadLetterStatus {
    pub const ALL: [DeadLetterStatus; 7] =
        [Self::Parked, Self::Delayed, Self::Waiting, Self::Redriving, Self::Done, Self::Discarded, Self::Ignored];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Parked => "parked",
            Self::Delayed => "delayed",
            Self::Waiting => "waiting",
            Self::Redriving => "redriving",
            Self::Done => "done",
            Self::Discarded => "discarded",
            Self::Ignored => "ignored",
        }
    }
}

impl std::str::FromStr for DeadLetterStatus {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text).ok_or_else(|| {
            let names = "parked, delayed, waiting, redriving, done, discarded, ignored";
            Error::invalid(format!("status {text:?} is none of {names}"))
        })
    }
}

/// Selects dead letters; every field that is set must match.
#[derive(Debug, Clone, Default)]
pub struct DeadLetterFilter {
    pub id: Option<DeadLetterId>,
    pub message_id: Option<MessageId>,
    pub group: Option<GroupName>,
    pub topic: Option<TopicName>,
    pub key: Option<Key>,
    pub error_code: Option<String>,
    pub status: Option<DeadLetterStatus>,
    /// Only those that are neither done nor discarded.
    pub open: bool,
    /// First seen at or after `from`, and before `to`.
    pub from: Option<Timestamp>,
    pub to: Option<Timestamp>,
    /// Only ids above this one: the last id of the previous page.
    pub after: Option<DeadLetterId>,
    pub fingerprint: Option<String>,
    pub trace_id: Option<String>,
    pub text: Option<TextSearch>,
    /// A value in the payload.
    pub path: Option<PayloadPath>,
    /// Only letters of groups in this state.
    pub group_state: Option<GroupState>,
}

/// Searches for a text in dead letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextSearch {
    /// Upper and lower case are equal in errors, but not in payloads.
    pub text: String,
    /// Whether payloads are searched as well as errors.
    pub in_payload: bool,
}

impl DeadLetterFilter {
    /// Returns whether nothing but the page is selected.
    pub fn is_empty(&self) -> bool {
        let Self { id, message_id, group, topic, key, error_code, status, open, from, to, after: _, .. } = self;
        let Self { fingerprint, trace_id, text, path, group_state, .. } = self;
        let has_name = group.is_some() || topic.is_some() || key.is_some();
        let has_error = error_code.is_some() || fingerprint.is_some() || text.is_some() || trace_id.is_some();
        let has_time = from.is_some() || to.is_some();
        let has_group = path.is_some() || group_state.is_some();
        !(has_group
            || id.is_some()
            || message_id.is_some()
            || has_name
            || has_error
            || status.is_some()
            || *open
            || has_time)
    }

    /// Selects parked letters unless a status is given.
    #[must_use]
    pub fn or_parked(mut self) -> Self {
        if self.status.is_none() && !self.open {
            self.status = Some(DeadLetterStatus::Parked);
        }
        self
    }
}

/// A count that stops at a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct AtLeast {
    pub count: u64,
    /// Whether there may be more.
    pub at_least: bool,
}

/// Dead letters with the same fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeadLetterGroup {
    pub fingerprint: String,
    pub count: u64,
    pub first_seen: Timestamp,
    pub last_seen: Timestamp,
    /// A letter of the group, with its code and error.
    pub sample: DeadLetterId,
    pub error_code: String,
    pub error: String,
    /// How many were first seen within the last hour and the last day.
    pub last_hour: u64,
    pub last_day: u64,
    pub state: GroupState,
    /// Of a muted group: when it opens.
    pub muted_until: Option<Timestamp>,
    /// What a person wrote about it.
    pub note: String,
}

/// The result of a redrive.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Redriven {
    /// Moved from parked to redriving (consumer) or back into the outbox (relay), oldest first.
    pub redriven: Vec<DeadLetterId>,
    /// Matched but not parked, so left alone.
    pub skipped: Vec<DeadLetterId>,
}

/// The result of a discard.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Discarded {
    /// Discarded now, oldest first.
    pub discarded: Vec<DeadLetterId>,
    /// Matched but not parked, so left alone.
    pub skipped: Vec<DeadLetterId>,
}

/// The open dead letters of one topic and group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenLetters {
    pub topic: TopicName,
    /// `None` for messages that the relay could not publish.
    pub group: Option<GroupName>,
    pub stats: DeadLetterStats,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct DeadLetterStats {
    pub parked: u64,
    pub delayed: u64,
    pub waiting: u64,
    pub redriving: u64,
    pub done: u64,
    pub discarded: u64,
    pub ignored: u64,
}

/// Operations on dead letters. Every change writes an audit row in the same transaction.
#[async_trait]
pub trait DeadLetters: Send + Sync {
    /// Returns at most `limit` matching letters, sorted by id, with their payloads.
    async fn find(&self, filter: &DeadLetterFilter, limit: usize) -> Result<Vec<DeadLetter>>;

    /// As `find`, for lists: payloads are not read, so `payload` is empty and `original_payload` is `None`.
    async fn list_letters(&self, filter: &DeadLetterFilter, limit: usize) -> Result<Vec<DeadLetter>>;

    /// Redrives the matching parked letters, in one transaction, on behalf of `actor`. No guard is consulted:
    /// [`Redrives::redrive_at_once`](crate::Redrives::redrive_at_once) does so, and records a reason.
    ///
    /// A letter of a consumer goes to that group's consumer, which drains its key in order. A letter of the relay goes
    /// back to its old position in the outbox, before its successors. Idempotent: a second call finds nothing parked.
    async fn redrive(&self, filter: &DeadLetterFilter, actor: &str) -> Result<Redriven>;

    /// Discards the matching parked letters for good, in one transaction, on behalf of `actor`. The audit trail keeps
    /// `reason`. Each key passes to its next letter, or is free.
    async fn discard(&self, filter: &DeadLetterFilter, reason: &str, actor: &str) -> Result<Discarded>;

    /// Replaces the payload of a parked letter; the original payload is kept. Fails with kind `NotFound` if there is no
    /// such letter, `Conflict` if it is not parked, and `Invalid` if the payload exceeds the limit.
    async fn edit(&self, id: DeadLetterId, payload: &[u8], actor: &str) -> Result<()>;

    /// Ignores a parked letter until it is released, on behalf of `actor`. Its key keeps waiting. Fails with kind
    /// `NotFound` if there is no such letter, and `Conflict` if it is neither parked nor ignored.
    async fn ignore(&self, id: DeadLetterId, reason: &str, actor: &str) -> Result<()>;

    /// Releases an ignored letter, which is parked again. Fails as `ignore` does.
    async fn release_ignored(&self, id: DeadLetterId, reason: &str, actor: &str) -> Result<()>;

    /// Counts the matching letters, up to `most`.
    async fn count_letters(&self, filter: &DeadLetterFilter, most: u64) -> Result<AtLeast>;

    /// Groups the matching letters by fingerprint; parked ones unless the filter names a status. Returns at most
    /// `limit` groups, the largest first.
    async fn dead_letter_groups(&self, filter: &DeadLetterFilter, limit: usize) -> Result<Vec<DeadLetterGroup>>;

    async fn dead_letter_stats(&self) -> Result<DeadLetterStats>;

    /// Returns the `limit` error codes with the most parked letters, and how many each has, the largest first.
    async fn top_error_codes(&self, limit: usize) -> Result<Vec<(String, u64)>>;

    /// Returns the open letters of each topic and group that has any.
    async fn open_letters(&self) -> Result<Vec<OpenLetters>>;

    /// Returns the 95th percentile of the age of parked letters; zero if none is parked. This default reads the oldest
    /// twentieth; an adapter overrides it where one statement can answer.
    async fn parked_age_p95(&self) -> Result<Duration> {
        const PAGE: usize = 100;
        let mut older = DeadLetterStats::rank_of_p95(self.dead_letter_stats().await?.parked);
        let mut filter = DeadLetterFilter { status: Some(DeadLetterStatus::Parked), ..Default::default() };
        loop {
            let page = self.list_letters(&filter, PAGE).await?;
            let Some(last) = page.last() else { return Ok(Duration::ZERO) };
            let letter = page.get(usize::try_from(older).unwrap_or(PAGE));
            if let Some(letter) = letter.or((page.len() < PAGE).then_some(last)) {
                return Ok(letter.first_seen.elapsed_since(Timestamp::now()));
            }
            filter.after = Some(last.id);
            older -= PAGE as u64;
        }
    }
}

/// What is stored about an error besides its code and text. Both are missing in letters that the relay or an earlier
/// version parked, until they are computed from the text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoredError {
    pub fingerprint: Option<String>,
    /// A JSON array of texts.
    pub causes: Option<String>,
}

impl StoredError {
    pub fn from_failure(failure: &Failure) -> Self {
        let causes = (!failure.causes.is_empty()).then(|| serde_json::Value::from(failure.causes.clone()).to_string());
        Self { fingerprint: Some(failure.fingerprint()), causes }
    }

    pub fn fingerprint(&self, code: &str, error: &str) -> String {
        self.fingerprint.clone().unwrap_or_else(|| error_fingerprint(code, error))
    }

    pub fn causes(&self) -> Vec<String> {
        self.causes.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }
}

/// Returns the trace id of a `traceparent` among stored headers: 32 hexadecimal digits, not all zero.
pub fn trace_id(headers: &serde_json::Value) -> Option<String> {
    let mut parts = headers.get("traceparent")?.as_str()?.split('-');
    let (_, trace) = (parts.next()?, parts.next()?);
    let is_hex = trace.len() == 32 && trace.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    (is_hex && trace.bytes().any(|byte| byte != b'0')).then(|| trace.to_owned())
}

impl DeadLetterStats {
    /// Returns how many letters need a person. Without parked or redriving letters, waiting ones wait behind delayed
    /// ones, which are retried automatically.
    pub fn needing_action(&self) -> u64 {
        let held = self.parked + self.redriving;
        held + if held > 0 { self.waiting } else { 0 }
    }

    /// Returns how many of `count` letters are older than the one at the 95th percentile (nearest rank).
    pub fn rank_of_p95(count: u64) -> u64 {
        count / 20
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_valid_traceparent_has_a_trace_id() {
        let of = |text: &str| trace_id(&json!({"traceparent": text}));
        let valid = "4bf92f3577b34da6a3ce929d0e0e4736";
        assert_eq!(of(&format!("00-{valid}-00f067aa0ba902b7-01")).as_deref(), Some(valid));
        for wrong in
            ["", "00", "00-1-2-3", "00-4BF92F3577B34DA6A3CE929D0E0E4736-1-1", &format!("00-{}-1-1", "0".repeat(32))]
        {
            assert_eq!(of(wrong), None, "{wrong:?}");
        }
        assert_eq!(trace_id(&json!({})), None);
        assert_eq!(trace_id(&json!({"traceparent": 7})), None);
    }

    #[test]
    fn filter_is_empty_without_a_condition() {
        let default = DeadLetterFilter::default;
        assert!(default().is_empty() && DeadLetterFilter { after: Some(7), ..default() }.is_empty());
        let text = Some(TextSearch { text: "x".into(), in_payload: false });
        for filter in [
            DeadLetterFilter { id: Some(1), ..default() },
            DeadLetterFilter { open: true, ..default() },
            DeadLetterFilter { to: Some(Timestamp::now()), ..default() },
            DeadLetterFilter { fingerprint: Some("1-ab".into()), ..default() },
            DeadLetterFilter { text, ..default() },
        ] {
            assert!(!filter.is_empty(), "{filter:?}");
        }
    }
}
