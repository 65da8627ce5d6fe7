//! The flags that select dead letters.

use clap::Args;
use landfall::{
    DeadLetterFilter, DeadLetterId, DeadLetterStatus, ErrorCode, GroupName, Key, MessageId, TextSearch, Timestamp,
    TopicName,
};

#[derive(Debug, Args)]
#[command(next_help_heading = "Filters (all given ones must match)")]
pub(super) struct Filter {
    /// Id of the dead letter.
    #[arg(long)]
    id: Option<DeadLetterId>,
    /// Id of the message.
    #[arg(long, value_name = "UUID")]
    message_id: Option<MessageId>,
    /// Consumer group in which it failed.
    #[arg(long)]
    group: Option<GroupName>,
    /// Topic of the message.
    #[arg(long)]
    topic: Option<TopicName>,
    /// Ordering key of the message.
    #[arg(long)]
    key: Option<Key>,
    /// Error code, such as HANDLER_ERROR.
    #[arg(long, value_parser = |text: &str| Ok::<_, std::convert::Infallible>(ErrorCode::new(text)))]
    code: Option<ErrorCode>,
    /// Fingerprint of the error, as `dlq groups` shows it.
    #[arg(long)]
    fingerprint: Option<String>,
    /// Trace of the message: 32 hexadecimal digits.
    #[arg(long, value_name = "ID")]
    trace_id: Option<String>,
    /// Text in the error or the payload.
    #[arg(long = "text", value_name = "TEXT")]
    text: Option<String>,
    /// Status: parked, ignored, delayed, waiting, redriving, done or discarded; open for all but the last two; all.
    #[arg(long)]
    status: Option<Status>,
    /// First seen at or after this time (2026-11-15T08:00:00Z).
    #[arg(long, value_name = "TIME")]
    from: Option<Timestamp>,
    /// First seen before this time.
    #[arg(long, value_name = "TIME")]
    to: Option<Timestamp>,
}

/// A value of `--status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    All,
    /// Neither done nor discarded.
    Open,
    Is(DeadLetterStatus),
}

impl std::str::FromStr for Status {
    type Err = landfall::Error;

    fn from_str(text: &str) -> landfall::Result<Self> {
        match text {
            "all" => Ok(Self::All),
            "open" => Ok(Self::Open),
            text => text.parse().map(Self::Is),
        }
    }
}

impl Filter {
    /// Selects open letters unless a status or a single letter is given.
    pub(super) fn or_open(mut self) -> Self {
        if self.id.is_none() && self.message_id.is_none() {
            self.status = self.status.or(Some(Status::Open));
        }
        self
    }

    pub(super) fn is_empty(&self) -> bool {
        let Self { id, message_id, group, topic, key, code, fingerprint, trace_id, text, status, from, to } = self;
        id.is_none()
            && message_id.is_none()
            && group.is_none()
            && topic.is_none()
            && key.is_none()
            && code.is_none()
            && fingerprint.is_none()
            && trace_id.is_none()
            && text.is_none()
            && status.is_none()
            && from.is_none()
            && to.is_none()
    }

    pub(super) fn to_filter(&self) -> DeadLetterFilter {
        DeadLetterFilter {
            id: self.id,
            message_id: self.message_id,
            group: self.group.clone(),
            topic: self.topic.clone(),
            key: self.key.clone(),
            error_code: self.code.as_ref().map(|code| code.as_str().to_owned()),
            status: match self.status {
                Some(Status::Is(status)) => Some(status),
                Some(Status::All | Status::Open) | None => None,
            },
            open: self.status == Some(Status::Open),
            from: self.from,
            to: self.to,
            after: None,
            fingerprint: self.fingerprint.clone(),
            trace_id: self.trace_id.clone(),
            text: self.text.clone().map(|text| TextSearch { text, in_payload: true }),
        }
    }
}
