//! The flags that say which dead letters.

use clap::Args;
use landfall::{
    DeadLetterFilter, DeadLetterId, DeadLetterStatus, ErrorCode, GroupName, Key, MessageId, Timestamp, TopicName,
};

#[derive(Debug, Args)]
#[command(next_help_heading = "Which (all that are given must match)")]
pub(super) struct Filter {
    /// The number of one dead letter.
    #[arg(long)]
    id: Option<DeadLetterId>,
    /// The id of the message.
    #[arg(long, value_name = "UUID")]
    message_id: Option<MessageId>,
    /// The consumer group it failed in.
    #[arg(long)]
    group: Option<GroupName>,
    /// The topic it was sent to.
    #[arg(long)]
    topic: Option<TopicName>,
    /// The ordering key.
    #[arg(long)]
    key: Option<Key>,
    /// The error code, such as HANDLER_ERROR.
    #[arg(long, value_parser = |text: &str| Ok::<_, std::convert::Infallible>(ErrorCode::new(text)))]
    code: Option<ErrorCode>,
    /// parked, delayed, waiting, redriving or done.
    #[arg(long)]
    status: Option<DeadLetterStatus>,
    /// First seen at this time or later (2026-11-15T08:00:00Z).
    #[arg(long, value_name = "TIME")]
    from: Option<Timestamp>,
    /// First seen before this time.
    #[arg(long, value_name = "TIME")]
    to: Option<Timestamp>,
}

impl Filter {
    pub(super) fn is_empty(&self) -> bool {
        let Self { id, message_id, group, topic, key, code, status, from, to } = self;
        id.is_none()
            && message_id.is_none()
            && group.is_none()
            && topic.is_none()
            && key.is_none()
            && code.is_none()
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
            status: self.status,
            from: self.from,
            to: self.to,
            after: None,
        }
    }
}
