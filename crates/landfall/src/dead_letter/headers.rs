//! Headers that describe a failure.

use landfall_core::adapter::Arrival;
use landfall_core::{Failure, GroupName, Message, SystemHeader, Timestamp, TopicName};

/// A copy of the message for `topic`, with everything known about its failure in `group` as headers.
pub(crate) fn with_failure_headers(
    arrival: Arrival<'_>,
    topic: TopicName,
    group: &GroupName,
    attempts: u32,
    failure: &Failure,
) -> Message {
    let Arrival { message, origin } = arrival;
    let mut copy = Message { topic, ..message.clone() };
    let mut note = |header, value: &dyn std::fmt::Display| copy.headers.note(header, value);
    note(SystemHeader::Attempts, &attempts);
    note(SystemHeader::Group, group);
    note(SystemHeader::OriginalTopic, &message.topic);
    if let Some(position) = origin {
        note(SystemHeader::OriginalPartition, &position.partition);
        note(SystemHeader::OriginalOffset, &position.offset);
    }
    note(SystemHeader::ErrorCode, &failure.code);
    note(SystemHeader::Error, &failure.error);
    note(SystemHeader::FailedAt, &Timestamp::now());
    copy
}
