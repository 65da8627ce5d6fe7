//! The flags that select dead letters.

use clap::Args;
use landfall::{
    DeadLetterFilter, DeadLetterId, DeadLetterStatus, ErrorCode, GroupName, GroupState, Key, MessageId, PayloadPath,
    TextSearch, Timestamp, TopicName,
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
    /// Value in a JSON payload, as its text or the content of a string: `$.order.items[0].id=42`.
    #[arg(long, value_name = "PATH=VALUE")]
    path: Option<PayloadPath>,
    /// State of the failure group: open, acknowledged, muted, resolved or regressed.
    #[arg(long)]
    state: Option<GroupState>,
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
        let Self { id, message_id, group, topic, key, code, fingerprint, trace_id, text, .. } = self;
        let Self { path, state, status, from, to, .. } = self;
        id.is_none()
            && message_id.is_none()
            && group.is_none()
            && topic.is_none()
            && key.is_none()
            && code.is_none()
            && fingerprint.is_none()
            && trace_id.is_none()
            && text.is_none()
            && path.is_none()
            && state.is_none()
            && status.is_none()
            && from.is_none()
            && to.is_none()
    }

    /// Returns whether the filter names a single letter and nothing else.
    pub(super) fn is_one_letter(&self) -> bool {
        self.id.is_some() && self.to_json().len() == 1
    }

    /// Returns the conditions by their names in HTTP requests.
    pub(super) fn to_json(&self) -> serde_json::Map<String, serde_json::Value> {
        let status = self.status.map(|status| match status {
            Status::All => "all",
            Status::Open => "open",
            Status::Is(status) => status.as_str(),
        });
        let conditions = [
            ("id", self.id.map(|id| id.to_string())),
            ("message_id", self.message_id.map(|id| id.to_string())),
            ("group", self.group.as_ref().map(ToString::to_string)),
            ("topic", self.topic.as_ref().map(ToString::to_string)),
            ("key", self.key.as_ref().map(ToString::to_string)),
            ("code", self.code.as_ref().map(|code| code.as_str().to_owned())),
            ("fingerprint", self.fingerprint.clone()),
            ("trace_id", self.trace_id.clone()),
            ("q", self.text.clone()),
            ("path", self.path.as_ref().map(ToString::to_string)),
            ("state", self.state.map(|state| state.as_str().to_owned())),
            ("status", status.map(str::to_owned)),
            ("from", self.from.map(|from| from.to_string())),
            ("to", self.to.map(|to| to.to_string())),
        ];
        conditions.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into()))).collect()
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
            path: self.path.clone(),
            group_state: self.state,
        }
    }
}
