use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde::Serialize;

use crate::{Error, GroupName, Key, MessageId, Result, Timestamp, TopicName};

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
}

impl DeadLetterStatus {
    pub const ALL: [DeadLetterStatus; 6] =
        [Self::Parked, Self::Delayed, Self::Waiting, Self::Redriving, Self::Done, Self::Discarded];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Parked => "parked",
            Self::Delayed => "delayed",
            Self::Waiting => "waiting",
            Self::Redriving => "redriving",
            Self::Done => "done",
            Self::Discarded => "discarded",
        }
    }
}

impl std::str::FromStr for DeadLetterStatus {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text).ok_or_else(|| {
            Error::invalid(format!("status {text:?} is none of parked, delayed, waiting, redriving, done, discarded"))
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
}

/// Operations on dead letters. Every change writes an audit row in the same transaction.
#[async_trait]
pub trait DeadLetters: Send + Sync {
    /// Returns at most `limit` matching letters, sorted by id.
    async fn find(&self, filter: &DeadLetterFilter, limit: usize) -> Result<Vec<DeadLetter>>;

    /// Redrives the matching parked letters, in one transaction, on behalf of `actor`.
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

    async fn dead_letter_stats(&self) -> Result<DeadLetterStats>;

    /// Returns the open letters of each topic and group that has any.
    async fn open_letters(&self) -> Result<Vec<OpenLetters>>;

    /// Returns the 95th percentile of the age of parked letters; zero if none is parked. This default reads the oldest
    /// twentieth; an adapter overrides it where one statement can answer.
    async fn parked_age_p95(&self) -> Result<Duration> {
        const PAGE: usize = 100;
        let mut older = DeadLetterStats::rank_of_p95(self.dead_letter_stats().await?.parked);
        let mut filter = DeadLetterFilter { status: Some(DeadLetterStatus::Parked), ..Default::default() };
        loop {
            let page = self.find(&filter, PAGE).await?;
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
